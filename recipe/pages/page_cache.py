"""Pages of runs, kept until a file that they show changes."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from recipe.pages.run_files import page_files, signature
from recipe.pages.run_list import RunRow
from recipe.pages.run_page import run_page
from recipe.records.run_directory import RunDirectory

LIVE = "running"
RELOAD = 60
"""Seconds after which the page of a run under way loads itself again."""


class PageCache:
    """The last few pages, each with what it was made from; one is made at a time, as each takes a core."""

    def __init__(self, root: Path, capacity: int = 8):
        self._root, self._capacity = root, capacity
        self._pages: OrderedDict[tuple[str, ...], tuple[object, str]] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, runs: Sequence[tuple[RunDirectory, RunRow]], now: float) -> str:
        """The HTML of the page of these runs, made at time `now` or kept from an earlier call.

        Raises:
            RecordsError: this release cannot read a run, or a link in it leads out of the folder.
        """
        key = tuple(row.id for _, row in runs)
        with self._lock:
            source = [
                (row.state, [(str(file), signature(file)) for file in page_files(run.path, self._root)])
                for run, row in runs
            ]
            if key not in self._pages or self._pages[key][0] != source:
                reload = RELOAD if any(row.state == LIVE for _, row in runs) else 0
                self._pages[key] = source, run_page([run for run, _ in runs], now, reload=reload)
            self._pages.move_to_end(key)
            while len(self._pages) > self._capacity:
                self._pages.popitem(last=False)
            return self._pages[key][1]
