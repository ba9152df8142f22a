"""A map over all cores, with results in the order of the items."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Cores:
    """A pool of worker processes."""

    def __init__(self, executor: Executor, count: int) -> None:
        self._executor, self._count = executor, count

    def ordered_map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """`work` of every item, in order. Runs only a few items ahead, so the items may be endless."""
        rest = iter(items)
        waiting: deque[Future[Result]] = deque()
        try:
            while True:
                ahead = islice(rest, self._count + 1 - len(waiting))
                waiting.extend(self._executor.submit(work, item) for item in ahead)
                if not waiting:
                    return
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def all_cores() -> Iterator[Cores]:
    """One process per processor available to this one; they stop at the end of the block."""
    count = len(os.sched_getaffinity(0))
    executor = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    try:
        yield Cores(executor, count)
    finally:
        executor.shutdown(cancel_futures=True)
