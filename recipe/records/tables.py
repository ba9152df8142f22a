"""What reports print: tables in Markdown or on a console, and cautions about measurements too weak for a claim."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console

from recipe.records.run_directory import RunDirectory
from workers.skill_metrics import OVER_SKILLS

WIDTH_OF_FILES = 160

CUT_SHARE = 0.05
"""Largest healthy share of answers cut at the length limit."""


def cut_share(row: Mapping[str, float], limit: float) -> float | None:
    """Share of a step's answers that end at the length limit (tokens); None if the row has no lengths.

    verl's clip ratio counts answers as long as the step's longest, whether or not that is the limit.
    """
    share, longest = row.get("response_length/clip_ratio"), row.get("response_length/max")
    if share is None or longest is None:
        return None
    return share if longest >= limit else 0.0


def table_console(stderr: bool = False) -> Console:
    """A console for tables; without a terminal, rich assumes 80 columns, which would wrap their cells."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, width=None if terminal else WIDTH_OF_FILES)


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with its first column aligned left, the others right."""
    lines = [headers, *rows]
    head, *body = (f"| {' | '.join(cells)} |" for cells in lines)
    return "\n".join([head, "|---|" + "---:|" * (len(headers) - 1), *body])


def cut_warnings(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each data set (not for its skills) with more than 5% of the answers cut at the length limit.

    metrics: data set -> result of recipe.evaluation.metrics.measure.
    """
    shares = {name: found.get("cut_share") for name, found in metrics.items() if "/" not in name}
    return [
        f"warning: {name}: {share:.1%} of the answers were cut at the length limit; raise it, in training too"
        for name, share in shares.items()
        if share is not None and share > CUT_SHARE
    ]


# Largest standard error of an accuracy that supports a claim. sqrt(p (1 - p) / samples) is largest at p = 1/2, so
# 1 / (4 * 0.02^2) = 625 samples per skill suffice for any accuracy.
LARGEST_ERROR = 0.02


def cautions(runs: Sequence[RunDirectory]) -> list[str]:
    """A sentence for each way in which the measurements of these runs are too weak for a claim; empty if none are."""
    errors = [_largest_error(run) for run in runs]
    above = [error for error in errors if error is not None and error > LARGEST_ERROR]
    unknown, ungreedy = errors.count(None), sum(not _is_greedy(run) for run in runs)
    sentences = []
    if above:
        sentences.append(
            f"An accuracy's standard error exceeds {100 * LARGEST_ERROR:g} points in {_of(len(above), runs)}: "
            f"up to {100 * max(above):.1f}."
        )
    if unknown:
        sentences.append(f"The standard error of an accuracy was not recorded in {_of(unknown, runs)}.")
    if ungreedy:
        sentences.append(f"Greedy accuracy was not measured in {_of(ungreedy, runs)}.")
    return sentences


def _of(count: int, runs: Sequence[RunDirectory]) -> str:
    return f"{count} of {len(runs)} run{'s' * (len(runs) != 1)}"


def _validations(run: RunDirectory) -> list[dict[str, float]]:
    return [row for row in run.metrics() if "skill/mean/accuracy" in row]


def _largest_error(run: RunDirectory) -> float | None:
    """Largest standard error of a skill's accuracy, a share of 1, in the first and last validation; None if one was
    not recorded. Validations between may take fewer samples of other skills (`protocol.val_n_of_others`)."""
    validations = _validations(run)
    errors = [
        row.get(key.replace("/accuracy", "/standard_error"))
        for row in [*validations[:1], *validations[-1:]]
        for key in row
        if key.startswith("skill/") and key.endswith("/accuracy") and key.split("/")[1] not in OVER_SKILLS
    ]
    known = [error for error in errors if error is not None]
    return max(known) if known and len(known) == len(errors) else None


def _is_greedy(run: RunDirectory) -> bool:
    return all("skill/mean/greedy_accuracy" in row for row in _validations(run))
