"""A caller's bound on the time limits of programs, whatever lies between the caller and the client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
