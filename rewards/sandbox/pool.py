"""The server's worker processes: hand out work, notice death and stalls, replace."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from rewards.sandbox.slot import Settings, Slot, SlotFailed

log = logging.getLogger("rewards.sandbox")


class Busy(Exception):
    """The queue is full. `retry_after`: seconds after which to try again."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("the queue is full")
        self.retry_after = retry_after


@dataclass
class Counters:
    """What `/metrics` reports."""

    programs: int = 0
    cases: int = 0
    rejected: int = 0
    retried: int = 0
    failed: int = 0
    replaced: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def count(self, results: list[dict[str, Any]]) -> None:
        """Add results by class."""
        self.cases += len(results)
        for result in results:
            self.outcomes[result["outcome"]] = self.outcomes.get(result["outcome"], 0) + 1
            self.seconds += result["time"]


class Pool:
    """All slots of a server, and the line of those who wait for one."""

    def __init__(self, workers: int, settings: Settings) -> None:
        self.settings = settings
        self.slots = [Slot(number, settings) for number in range(workers)]
        self.counters = Counters()
        self.pending = 0
        self._idle: deque[Slot] = deque()
        self._waiting: deque[asyncio.Future[Slot]] = deque()
        self._repairs: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """Start all workers; raises `SlotFailed`."""
        await asyncio.gather(*(slot.start() for slot in self.slots))
        self._idle.extend(self.slots)

    def close(self) -> None:
        """End all workers."""
        self._closed = True
        for task in self._repairs:
            task.cancel()
        for slot in self.slots:
            slot.kill()

    def admit(self, programs: int) -> None:
        """Take programs into the queue; raises `Busy` when they would make it longer than it may be."""
        if self.pending and self.pending + programs > self.settings.queue + len(self.slots):
            self.counters.rejected += 1
            raise Busy(max(1.0, round(self.pending / len(self.slots) * self._mean_seconds())))
        self.pending += programs

    def _mean_seconds(self) -> float:
        return self.counters.seconds / max(1, self.counters.programs)

    def leave(self, programs: int) -> None:
        """Take programs out of the queue again, done or not."""
        self.pending -= programs

    async def results(self, job: dict[str, Any]) -> AsyncIterator[tuple[list[dict[str, Any]], bool]]:
        """Results of an admitted job in chunks, each with whether it is the last; a job whose worker fails, or whose
        program is killed by nobody knows whom, is run once more elsewhere.

        Raises `SlotFailed` when that one fails as well.
        """
        done = 0
        self.counters.programs += 1
        for attempt in (1, 2):
            slot = await self._acquire()
            healthy = False
            rest = job if not done else {**job, "cases": job["cases"][done:]}
            try:
                async for results, last in slot.run(rest):
                    # No limit of ours ends a program with SIGKILL unsaid: it did so itself, or somebody outside did
                    # (the kernel short of memory, an operator). Run once more, only its own doing comes back.
                    sure = results if attempt == 2 else _before_a_kill(results)
                    cut = len(sure) < len(results)
                    done += len(sure)
                    self.counters.count(sure)
                    if last:
                        # The slot is free as soon as its work is done, not when the caller has taken the answer.
                        healthy = True
                        self._release(slot)
                    yield sure, last and not cut
                    if cut:
                        raise SlotFailed("a program was killed from outside, or killed itself")
                return
            except SlotFailed as error:
                log.warning("slot %d failed (attempt %d): %s", slot.number, attempt, error)
                if attempt == 2:
                    self.counters.failed += 1
                    raise
                self.counters.retried += 1
            finally:
                # Also when the caller went away in the middle: the worker then is busy with nobody's job.
                if not healthy:
                    self._replace(slot)

    async def _acquire(self) -> Slot:
        if self._idle:
            return self._idle.popleft()
        waiter: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release(waiter.result())
            raise

    def _release(self, slot: Slot) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(slot)
                return
        self._idle.append(slot)

    def _replace(self, slot: Slot) -> None:
        if self._closed:
            return
        self.counters.replaced += 1
        slot.kill()
        task = asyncio.get_running_loop().create_task(self._restart(slot))
        self._repairs.add(task)
        task.add_done_callback(self._repairs.discard)

    async def _restart(self, slot: Slot) -> None:
        delay = 0.0
        while not self._closed:
            with contextlib.suppress(SlotFailed):
                await slot.start()
                self._release(slot)
                return
            delay = min(10.0, delay * 2 or 0.2)
            await asyncio.sleep(delay)


def _before_a_kill(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results before the first whose program died of SIGKILL."""
    kills = (number for number, result in enumerate(results) if result.get("error_type") == "SIGKILL")
    return results[: next(kills, len(results))]
