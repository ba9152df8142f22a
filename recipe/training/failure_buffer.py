"""Prompts that the policy fails, kept to be tried again: unique by task, first failed first tried.

What FAILURE_BUFFER_UNIQUE of paper A asks for. It holds ids of tasks only, so that a checkpoint of it is a list of
words; the rows are looked up in the data set.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class FailureBuffer:
    """Ids of tasks of which no sample was right when they were tried last.

    capacity: ids kept; the one that has waited longest goes first. Nothing is random, so a continued run draws what
    it would have drawn.
    """

    FILE = "failures.json"

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._waiting: dict[str, None] = {}  # in the order in which they are tried again

    def __len__(self) -> int:
        return len(self._waiting)

    def see(self, results: Iterable[tuple[str, bool]]) -> None:
        """Record outcomes (task id, whether the sample was right); one right sample is enough.

        Samples that could not be verified are not to be among them.
        """
        solved: dict[str, bool] = defaultdict(bool)
        for task, right in results:
            solved[task] |= right
        for task, right in solved.items():
            if right:
                self._waiting.pop(task, None)
            else:
                self._waiting.setdefault(task)
        while len(self._waiting) > self.capacity:
            del self._waiting[next(iter(self._waiting))]

    def draw(self, count: int, without: Iterable[str] = ()) -> list[str]:
        """At most `count` different tasks, none of `without`; they go to the end of the queue until they are solved."""
        present = set(without)
        drawn = [task for task in self._waiting if task not in present][:count]
        for task in drawn:
            del self._waiting[task]
            self._waiting[task] = None
        return drawn

    def save(self, folder: Path) -> None:
        """Write the queue into a checkpoint's folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.FILE).write_text(json.dumps(list(self._waiting)))

    def load(self, folder: Path) -> None:
        """Take the queue of a checkpoint; one without (made before, or with share 0) leaves the buffer empty."""
        file = folder / self.FILE
        self._waiting = dict.fromkeys(json.loads(file.read_text())) if file.exists() else {}


def task_of(extra_info: Mapping[str, Any]) -> str:
    """The buffer's name of a task: the row's id."""
    return str(extra_info.get("id", extra_info.get("index")))
