"""The seed of each sample, so that what is drawn does not depend on which request comes first."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from recipe.training.failure_buffer import task_of
from rewards.seeds import seed_of

# The field of a batch that says how often a prompt's task stands before it in the same step.
TIMES_BEFORE = "times_before"


class TimesBefore:
    """How often a step asked for each task before: a small pool gives the same row twice, and verl asks again in place
    of groups that it leaves out (``algorithm.filter_groups``).
    """

    def __init__(self) -> None:
        self._step: int | None = None
        self._seen = Counter[str]()

    def of(self, step: int, tasks: Iterable[str]) -> list[int]:
        """One number for each of these tasks, which the step asks for now; counting begins anew with each step."""
        if step != self._step:
            self._step, self._seen = step, Counter()
        numbers = []
        for task in tasks:
            numbers.append(self._seen[task])
            self._seen[task] += 1
        return numbers


def sample_seed(rollout_seed: int, answers: int, trajectory: Mapping[str, Any], row: Mapping[str, Any]) -> int:
    """The seed of one sample: by step, task and its number among the task's samples; another one in a validation.

    answers: of a prompt in training. trajectory: what verl says of the sample. row: the fields of its data row.
    """
    number = row["session_id"] + answers * row.get(TIMES_BEFORE, 0)
    task = task_of(row["extra_info"])
    return seed_of(rollout_seed, trajectory["step"], bool(trajectory["validate"]), task, number)
