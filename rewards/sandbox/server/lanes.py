"""Scheduling: long programs must not keep short ones waiting.

A server has one slot per concurrent program and a few spare ones. A program that has run for `MOMENT` becomes a long
one without moving; long programs may hold the spare slots, so another program starts in its place. If the spare slots
are taken and short programs wait, a program may run for `QUANTUM`, is then preempted, and restarts as a long one when
its turn comes. Its work so far is lost: one quantum under constant load. A program that sleeps or computes up to its
limit, even if every second program does, therefore costs the others a quantum instead of its limit.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rewards.sandbox.server.slot import Slot

QUANTUM = 0.1
"""Seconds after which a program that keeps others waiting is preempted."""
MOMENT = 0.005
"""Seconds after which a program becomes a long one, if there is room."""


@dataclass(eq=False)
class Turn:
    """One program on one slot since `began` (monotonic seconds; infinite until its caller runs and can send the job).
    `long`: never preempted. `given_up`: preemption requested."""

    slot: Slot
    long: bool
    began: float = math.inf
    given_up: bool = False

    def overdue(self, seconds: float) -> bool:
        """Whether a short program has run for at least `seconds`."""
        return not self.long and time.monotonic() >= self.began + seconds


Waiting = asyncio.Future[Turn]


class Lanes:
    """The slots of a server and the programs that wait for one.

    `short`: maximum number of concurrent short programs. `preempt(slot)`: request preemption of a slot's program.
    """

    def __init__(self, short: int, preempt: Callable[[Slot], None]) -> None:
        self.short = short
        self.spare = spare_slots(short)
        self._preempt = preempt
        # Last in, first out: the memory of the slot used last is still in the caches.
        self._idle: list[Slot] = []
        # In the order of their start, oldest first.
        self._running: dict[bool, dict[Turn, None]] = {False: {}, True: {}}
        self._queues: dict[bool, deque[Waiting]] = {False: deque(), True: deque()}
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, *, long: bool) -> Turn:
        """Wait for a slot. `long`: for a program that was preempted before."""
        queue = self._queues[long]
        if self._idle and not queue and self._has_room(long=long):
            turn = self._begin(long)
        else:
            turn = await self._wait(queue)
        turn.began = time.monotonic()
        return turn

    async def _wait(self, queue: deque[Waiting]) -> Turn:
        waiting: Waiting = asyncio.get_running_loop().create_future()
        queue.append(waiting)
        self._dispatch()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self.finish(waiting.result())
            raise

    def finish(self, turn: Turn) -> None:
        """End a turn and free its slot."""
        self._running[turn.long].pop(turn, None)
        self._idle.append(turn.slot)
        self._dispatch()

    def forget(self, turn: Turn) -> None:
        """End a turn whose slot must be replaced; `add` returns the slot."""
        self._running[turn.long].pop(turn, None)
        self._dispatch()

    def add(self, slot: Slot) -> None:
        """Add a slot that is ready."""
        self._idle.append(slot)
        self._dispatch()

    def _has_room(self, *, long: bool) -> bool:
        if not long:
            return len(self._running[False]) < self.short
        # With no short program waiting, long ones may take all slots but one, which stays free for the next short one.
        most = self.spare if self._queues[False] else self.short + self.spare - 1
        return len(self._running[True]) < most

    def _begin(self, long: bool) -> Turn:
        turn = Turn(self._idle.pop(), long)
        self._running[long][turn] = None
        return turn

    def _dispatch(self) -> None:
        self._promote()
        for long, queue in self._queues.items():
            while queue and (queue[0].done() or (self._idle and self._has_room(long=long))):
                waiting = queue.popleft()
                if not waiting.done():
                    waiting.set_result(self._begin(long))
        if self._queues[False]:
            self._make_room()

    def _promote(self) -> None:
        """Turn programs that have run for `MOMENT` into long ones, up to the number of spare slots."""
        short, long = self._running[False], self._running[True]
        while (
            short and len(long) < self.spare and (oldest := next(iter(short))).overdue(MOMENT) and not oldest.given_up
        ):
            del short[oldest]
            oldest.long = True
            long[oldest] = None

    def _make_room(self) -> None:
        """Preempt overdue programs, oldest first, one per waiting short program; set a timer for the next one."""
        given_up = 0
        for turn in self._running[False]:
            given_up += turn.given_up
            if given_up >= len(self._queues[False]):
                return
            if turn.given_up:
                continue
            if turn.overdue(QUANTUM):
                turn.given_up = True
                self._preempt(turn.slot)
            elif self._timer is None:
                wait = MOMENT if len(self._running[True]) < self.spare else QUANTUM
                now = time.monotonic()
                left = min(turn.began, now) + wait - now
                self._timer = asyncio.get_running_loop().call_later(max(left, 0.0) + 0.001, self._look_again)
            return

    def _look_again(self) -> None:
        self._timer = None
        self._dispatch()


def spare_slots(short: int) -> int:
    """Number of additional slots for long programs."""
    return max(1, short // 2)
