"""Queues of prompts, unique by task, first in, first out: failed ones to retry, mastered ones to review.

The first implements FAILURE_BUFFER_UNIQUE of paper A. They hold task ids only, so a checkpoint is lists of strings; the
rows are looked up in the data set.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


class FailureBuffer:
    """Ids of tasks without a correct sample in their latest attempt.

    capacity: maximal number of ids; the one that has waited longest is dropped first. Nothing is random, so a resumed
    run draws the same tasks as an uninterrupted one.
    """

    FILE = "failures.json"

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._waiting: dict[str, None] = {}  # in the order in which they are tried again

    def __len__(self) -> int:
        return len(self._waiting)

    def record(self, results: Iterable[tuple[str, bool]]) -> None:
        """Record outcomes (task id, whether the sample is correct); one correct sample solves its task.

        Leave out samples that could not be verified.
        """
        solved: dict[str, bool] = defaultdict(bool)
        for task, correct in results:
            solved[task] |= correct
        for task, is_solved in solved.items():
            if is_solved:
                self._waiting.pop(task, None)
            else:
                self._waiting.setdefault(task)
        while len(self._waiting) > self.capacity:
            del self._waiting[next(iter(self._waiting))]

    def draw(self, count: int, without: Iterable[str] = ()) -> list[str]:
        """At most `count` different tasks, none of `without`; drawn tasks move to the end of the queue."""
        excluded = set(without)
        drawn = [task for task in self._waiting if task not in excluded][:count]
        for task in drawn:
            del self._waiting[task]
            self._waiting[task] = None
        return drawn

    def save(self, folder: Path) -> None:
        """Write the queue into a checkpoint's folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.FILE).write_text(json.dumps(list(self._waiting)))

    def load(self, folder: Path) -> None:
        """Load the queue of a checkpoint; one without a queue (``failures.share=0``) leaves the buffer empty."""
        file = folder / self.FILE
        self._waiting = dict.fromkeys(json.loads(file.read_text())) if file.exists() else {}


class MasteredPrompts:
    """Tasks of each skill whose samples were all right in the latest attempt, the longest known first.

    capacity: maximal number per skill; the oldest is dropped first.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._known: dict[str, dict[str, None]] = defaultdict(dict)

    def record(self, results: Iterable[tuple[str, str, bool | None]]) -> None:
        """Record outcomes (skill, task, whether the sample is right; None: not verified).

        A task is in when all of its samples are right, and out when one is wrong; else it stays where it is.
        """
        groups: dict[tuple[str, str], list[bool | None]] = defaultdict(list)
        for skill, task, right in results:
            groups[skill, task].append(right)
        for (skill, task), rights in groups.items():
            if False in rights:
                self._known[skill].pop(task, None)
            elif None not in rights:
                self._known[skill].setdefault(task)
        for known in self._known.values():
            while len(known) > self.capacity:
                del known[next(iter(known))]

    def of(self, skill: str) -> list[str]:
        """A skill's mastered tasks, the longest known first."""
        return list(self._known.get(skill, ()))

    def state(self) -> dict[str, list[str]]:
        """The whole content, as JSON values."""
        return {skill: list(known) for skill, known in self._known.items()}

    def restore(self, state: Mapping[str, Sequence[str]]) -> None:
        """Replace the content by what `state` returned."""
        self._known = defaultdict(dict, {skill: dict.fromkeys(tasks) for skill, tasks in state.items()})
