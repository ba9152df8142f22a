"""A caller's sandbox usage and its bound on program time limits, across any layers between caller and client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

_most: ContextVar[float | None] = ContextVar("most_seconds", default=None)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Bound every time limit within the block to `seconds`, including in tasks started there: for replays, which are
    many and can wait until others share their request."""
    token = _most.set(capped(seconds))
    try:
        yield
    finally:
        _most.reset(token)


def capped(timeout: float) -> float:
    """The requested time limit, bounded by `at_most`; called by the client."""
    most = _most.get()
    return timeout if most is None else min(timeout, most)


def can_wait() -> bool:
    """Whether a program may wait for others, to be sent with them; called by the client."""
    return _most.get() is not None


_covering: ContextVar[bool] = ContextVar("covering", default=False)


@contextmanager
def covering() -> Iterator[None]:
    """Ask for the executed statements of every check within the block, including in tasks started there."""
    token = _covering.set(True)
    try:
        yield
    finally:
        _covering.reset(token)


def is_covering() -> bool:
    """Whether the caller wants the executed statements; called by the client."""
    return _covering.get()


@dataclass
class BusyTime:
    """Sandbox usage of a caller.

    seconds: total worker time for starting, running and stopping programs, without queueing. timeouts: runs and cases
    that exceeded a time limit, including cases skipped because of it. passed: whether each case of the checks passed.
    executed: within `covering`, the program of each check and its executed statements, None if they are not known.
    """

    seconds: float = 0.0
    timeouts: int = 0
    passed: list[bool] = field(default_factory=list)
    executed: list[tuple[str, frozenset[int] | None]] = field(default_factory=list)


_callers: ContextVar[tuple[BusyTime, ...]] = ContextVar("callers", default=())


@contextmanager
def counted() -> Iterator[BusyTime]:
    """Count sandbox usage within the block, including in tasks started there; blocks may be nested."""
    busy = BusyTime()
    token = _callers.set((*_callers.get(), busy))
    try:
        yield busy
    finally:
        _callers.reset(token)


def note(seconds: float, timeouts: int = 0, passed: Sequence[bool] = ()) -> None:
    """Add a result to every open count; called by the client per result."""
    for busy in _callers.get():
        busy.seconds += seconds
        busy.timeouts += timeouts
        busy.passed += passed


def note_executed(code: str, statements: frozenset[int] | None) -> None:
    """Add the executed statements of a checked program to every open count; called by the client."""
    for busy in _callers.get():
        busy.executed.append((code, statements))
