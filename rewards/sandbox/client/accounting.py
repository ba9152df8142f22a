"""A caller's sandbox usage and its bound on program time limits, for any layers between caller and client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_most: ContextVar[float] = ContextVar("most_seconds", default=math.inf)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Within the block, in tasks that are started there, too, no time limit is longer than this."""
    token = _most.set(min(seconds, _most.get()))
    try:
        yield
    finally:
        _most.reset(token)


def capped(timeout: float) -> float:
    """The time limit that holds where this one was asked for; read by the client."""
    return min(timeout, _most.get())


@dataclass
class Busy:
    """seconds: of workers, added up: the time that programs ran and were started and ended, without waiting in line.
    timeouts: runs, and cases of checks, that were over their time limit, those that were not run for it included.
    """

    seconds: float = 0.0
    timeouts: int = 0


_callers: ContextVar[tuple[Busy, ...]] = ContextVar("callers", default=())


@contextmanager
def counted() -> Iterator[Busy]:
    """Counts what runs within the block, in tasks that are started there, too; blocks may stand in each other."""
    busy = Busy()
    token = _callers.set((*_callers.get(), busy))
    try:
        yield busy
    finally:
        _callers.reset(token)


def note(seconds: float, timeouts: int = 0) -> None:
    """Add a result to every open count; called by the client for each result."""
    for busy in _callers.get():
        busy.seconds += seconds
        busy.timeouts += timeouts
