"""Greedy answers beside the sampled ones of a validation: each prompt once, by the most likely token.

Sampled accuracy rises as well where a model only becomes surer of what it could do; greedy accuracy does not.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np
from verl.trainer.ppo.v1.agent_loop_tq import apply_greedy_sampling_params

GREEDY = "greedy"  # the field of a batch that says how a prompt is answered
_ANSWERS = "__rollout_n__"  # verl's, of how many answers a prompt has


class GreedyPrompts:
    """The batches of a validation's dataloader, with each prompt to be answered once, greedily."""

    def __init__(self, batches: Iterable[dict[str, Any]]):
        self._batches = batches

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._batches:
            size = len(batch["raw_prompt"])
            marks = {GREEDY: True, _ANSWERS: 1}
            yield batch | {key: np.array([value] * size, dtype=object) for key, value in marks.items()}


def sampling_of(sampling_params: Mapping[str, Any], row: MutableMapping[str, Any]) -> dict[str, Any]:
    """How this row is answered: by these parameters, or greedily where GREEDY, which is taken out of it, says so."""
    chosen = dict(sampling_params)
    if row.pop(GREEDY, False):
        apply_greedy_sampling_params(chosen)
    return chosen


def greedy_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """``skill/<name>/greedy_accuracy``, of the accuracies that a validation of `GreedyPrompts` found."""
    return {
        f"{key.removesuffix('accuracy')}greedy_accuracy": value
        for key, value in metrics.items()
        if key.startswith("skill/") and key.endswith("/accuracy")
    }
