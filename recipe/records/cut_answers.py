"""Answers that were cut at the length limit cannot be right: reports show their share, and warn above 5%."""

from collections.abc import Mapping
from typing import Any

CUT_SHARE = 0.05


def cut_warnings(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each data set (its skills are not told again) of which more than 5% of the answers were cut.

    metrics: data set -> what recipe.evaluation.metrics.measure found.
    """
    shares = {name: found.get("cut_share") for name, found in metrics.items() if "/" not in name}
    return [
        f"warning: {name}: {share:.1%} of the answers were cut at the length limit; raise it, in training too"
        for name, share in shares.items()
        if share is not None and share > CUT_SHARE
    ]
