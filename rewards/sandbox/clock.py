"""The time of running programs: waiting for them, and what of it is charged. Used by the worker."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from rewards.sandbox.frames import receive_frame

if TYPE_CHECKING:
    from rewards.sandbox.execution import Child

Handlers = dict[int, tuple[int, Callable[[], object]]]
"""What is watched: descriptor to the events of poll(2) and what serves them."""
NOTICEABLE = 0.02
"""Seconds from which on it is worth asking how many of them a program waited for a processor."""
PATIENCE = 4.0
"""A program that waits for a processor gets more wall time, up to this many times its limit."""


class FrontGone(Exception):
    """The server closed our socket: everything ends."""


def whole_check(timeout: float, cases: int, total: float | None = None) -> float:
    """Seconds that all cases of a check may take together: `total`, or by default four time limits of a case, or half
    of one for each case where that is more."""
    return total or timeout * max(4.0, cases / 2)


def seconds_stolen() -> float:
    """Time since the start in which the host gave this virtual machine no processor; 0.0 where there is no host."""
    try:
        with open("/proc/stat", "rb") as file:
            return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


class Cancelled(Exception):
    """The server wants the running job given up."""


class Clock:
    """Waits for children, watching the front's socket: when that closes, all ends; what it says ends the job."""

    def __init__(self, front: socket.socket) -> None:
        self._front = front
        self.charged = 0.0
        """Seconds that programs were waited for by `limited`, at most its limit each time."""

    def watch(
        self, done: Callable[[], bool], children: list[Child], deadline: float, *, cancellable: bool = True
    ) -> bool:
        """Serve the children's output until `done()` or the deadline (monotonic seconds); returns whether it was
        done. `cancellable`: raises `Cancelled` where the server wants the job given up; not while things are ended."""
        while not done():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            heard = (select.POLLIN, self._hear_front) if cancellable else (0, self._front_gone)
            handlers: Handlers = {self._front.fileno(): heard}
            for child in children:
                child.register(handlers)
            poll = select.poll()
            for descriptor, (events, _) in handlers.items():
                poll.register(descriptor, events)
            for descriptor, _ in poll.poll(remaining * 1000 + 1):
                handlers[descriptor][1]()
        return True

    def _front_gone(self) -> NoReturn:
        raise FrontGone

    def _hear_front(self) -> NoReturn:
        try:
            order = receive_frame(self._front)
        except (EOFError, OSError):
            raise FrontGone from None
        raise Cancelled(str(order))

    def limited(self, done: Callable[[], bool], children: list[Child], seconds: float) -> bool:
        """Like `watch`, for a program's time limit: time in which it was kept from a processor is not charged, be it by
        other processes or by other machines on the same host.
        """
        start, stolen = time.monotonic(), seconds_stolen()
        waited_before = sum(child.waited for child in children)
        deadline, latest = start + seconds, start + seconds * PATIENCE
        try:
            while not self.watch(done, children, deadline):
                waited = sum(child.time_waited() for child in children if child.report is None)
                waited += seconds_stolen() - stolen
                deadline = min(start + seconds + waited, latest)
                if deadline <= time.monotonic() + 0.001:
                    return done()
            return True
        finally:
            elapsed = time.monotonic() - start
            if elapsed > NOTICEABLE:
                elapsed -= sum(child.time_waited() for child in children) - waited_before + seconds_stolen() - stolen
            self.charged += min(seconds, max(0.0, elapsed))
