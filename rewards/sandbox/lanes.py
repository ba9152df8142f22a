"""Who runs next: programs that take long must not keep the short ones waiting.

A server has a slot for each program that runs at a time, and a few spare ones. A program that has run for a quantum of
time moves, where it is, to the long ones; these may hold the spare slots, so another program begins in its place. Where
the spare slots are held already and short programs wait, it is given up instead, and begins anew as a long one when its
turn comes: at most a quantum of its time is lost. So a program that sleeps or computes to its limit, and be it every
second one, costs the others a quantum and not its limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rewards.sandbox.slot import Slot

QUANTUM = 0.1
"""Seconds after which a program is a long one."""


@dataclass(eq=False)
class Turn:
    """One program on one slot. `long`: it may stay; `overdue`: it ran for a quantum while all spare slots were held."""

    slot: Slot
    long: bool
    overdue: bool = False
    timer: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class _Waiting:
    long: bool
    future: asyncio.Future[Turn] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Lanes:
    """The slots of a server and the programs that wait for one.

    `short`: programs that run at a time, as long as none takes long. `preempt(slot)`: gives the program of a slot up.
    """

    def __init__(self, short: int, preempt: Callable[[Slot], None]) -> None:
        self.short = short
        self.spare = spare_slots(short)
        self._preempt = preempt
        self._idle: deque[Slot] = deque()
        self._turns: set[Turn] = set()
        self._queues: dict[bool, deque[_Waiting]] = {False: deque(), True: deque()}

    async def acquire(self, *, long: bool) -> Turn:
        """Wait for a slot; `long`: for a program that was given up once."""
        waiting = _Waiting(long)
        self._queues[long].append(waiting)
        self._dispatch()
        try:
            return await waiting.future
        except asyncio.CancelledError:
            if waiting.future.done() and not waiting.future.cancelled():
                self.finish(waiting.future.result())
            raise

    def finish(self, turn: Turn) -> None:
        """End a turn; its slot is free."""
        self.forget(turn)
        self.add(turn.slot)

    def forget(self, turn: Turn) -> None:
        """End a turn whose slot is not free: it is replaced, and comes back with `add`."""
        if turn.timer is not None:
            turn.timer.cancel()
        self._turns.discard(turn)
        self._dispatch()

    def add(self, slot: Slot) -> None:
        """A slot that is ready."""
        self._idle.append(slot)
        self._dispatch()

    def _running(self, *, long: bool) -> int:
        return sum(turn.long is long for turn in self._turns)

    def _dispatch(self) -> None:
        for queue in self._queues.values():
            while queue and queue[0].future.done():
                queue.popleft()
        self._promote()
        while self._idle and (chosen := self._next_queue()) is not None:
            waiting = chosen.popleft()
            if not waiting.future.done():
                self._begin(waiting)
        if self._queues[False]:
            self._make_room()

    def _next_queue(self) -> deque[_Waiting] | None:
        short, long = self._queues[False], self._queues[True]
        if short and self._running(long=False) < self.short:
            return short
        # Without short programs the long ones may have all slots but one, which the next short one finds free.
        most = self.spare if short else self.short + self.spare - 1
        return long if long and self._running(long=True) < most else None

    def _begin(self, waiting: _Waiting) -> None:
        turn = Turn(self._idle.popleft(), waiting.long)
        self._turns.add(turn)
        if not turn.long:
            turn.timer = asyncio.get_running_loop().call_later(QUANTUM, self._is_overdue, turn)
        waiting.future.set_result(turn)

    def _is_overdue(self, turn: Turn) -> None:
        turn.overdue = True
        self._dispatch()

    def _promote(self) -> None:
        """Let programs that have run for a quantum stay, as long as they hold no more than the spare slots."""
        free = self.spare - self._running(long=True)
        for turn in [turn for turn in self._turns if turn.overdue and not turn.long][: max(0, free)]:
            turn.long = True

    def _make_room(self) -> None:
        """Give up one overdue program where short ones wait."""
        for turn in self._turns:
            if turn.overdue and not turn.long:
                turn.overdue = False
                self._preempt(turn.slot)
                return


def spare_slots(short: int) -> int:
    """Slots beyond the programs that run at a time, for those that take long."""
    return max(1, short // 2)
