"""The server's worker processes: distribute work, detect death and stalls, replace workers and attribute failures."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from rewards.sandbox.cases import whole_check
from rewards.sandbox.inside import outcomes
from rewards.sandbox.inside.outcomes import KNOWN_GOOD
from rewards.sandbox.server.lanes import Lanes, Turn, spare_slots
from rewards.sandbox.server.slot import FailedBeforeStart, ForeignAnswer, Preempted, Slot, SlotSettings, WorkerFailed

log = logging.getLogger("rewards.sandbox")


EARLY_FAILURES = 4
"""Number of workers that may fail before a job starts; the next such failure counts as one of its program."""
PAUSE = 0.1
"""Seconds until a killed program runs again."""


class Busy(Exception):
    """The queue is full. `retry_after`: seconds after which to try again."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("the queue is full")
        self.retry_after = retry_after


@dataclass
class Counters:
    """Counters for `/metrics`."""

    programs: int = 0
    cases: int = 0
    rejected: int = 0
    retried: int = 0
    failed: int = 0
    blamed: int = 0
    preempted: int = 0
    replaced: int = 0
    foreign: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def count(self, results: list[dict[str, Any]]) -> None:
        """Count results by outcome class."""
        self.cases += len(results)
        for result in results:
            self.outcomes[result["outcome"]] = self.outcomes.get(result["outcome"], 0) + 1
            self.seconds += result["time"]


@dataclass
class _Progress:
    """Progress of one job: its results, wanted and done (a run has one, a check one per case), their seconds, failures
    of the sandbox, workers that failed before the job started, unexplained kills, whether it is long."""

    wanted: int
    done: int = 0
    seconds: float = 0.0
    failures: int = 0
    early_failures: int = 0
    kills: int = 0
    long: bool = False
    finished: bool = False

    @property
    def has_all_results(self) -> bool:
        """Whether nothing is left to run, though the worker may have failed before it said so."""
        return 0 < self.done == self.wanted


class Pool:
    """All slots of a server."""

    def __init__(self, workers: int, settings: SlotSettings) -> None:
        self.settings = settings
        self.workers = workers
        self.slots = [Slot(number, settings) for number in range(workers + spare_slots(workers))]
        self.counters = Counters()
        self.pending = 0
        self._lanes = Lanes(workers, self._give_up)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """Start all workers; raises `WorkerFailed`."""
        await asyncio.gather(*(slot.start() for slot in self.slots))
        for slot in self.slots:
            self._lanes.add(slot)

    def close(self) -> None:
        """Kill all workers."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for slot in self.slots:
            slot.kill()

    def admit(self, programs: int) -> None:
        """Add programs to the queue; raises `Busy` if they would exceed its limit."""
        if self.pending and self.pending + programs > self.settings.queue + self.workers:
            self.counters.rejected += 1
            raise Busy(max(1.0, round(self.pending / self.workers * self._mean_seconds())))
        self.pending += programs

    def _mean_seconds(self) -> float:
        return self.counters.seconds / max(1, self.counters.programs)

    def leave(self, programs: int) -> None:
        """Remove programs from the queue, finished or not."""
        self.pending -= programs

    async def results(self, job: dict[str, Any]) -> AsyncIterator[tuple[list[dict[str, Any]], bool]]:
        """Results of an admitted job in chunks, each with whether it is the last.

        A job whose worker fails, or whose program is killed by an unknown sender, runs once more on another slot. If
        that fails as well and a known good program passes, the failure is the program's; else raises `WorkerFailed`.
        """
        self.counters.programs += 1
        progress = _Progress(wanted=len(job["cases"]) if "cases" in job else 1)
        while not progress.finished:
            if progress.has_all_results:
                yield [], True
                return
            try:
                async with contextlib.aclosing(self._attempt(_rest(job, progress), progress)) as attempt:
                    async for results, last in attempt:
                        yield results, last
            except WorkerFailed as error:
                if progress.has_all_results:
                    continue
                # Bounded, so that no program can make workers fail forever.
                if isinstance(error, FailedBeforeStart) and progress.early_failures < EARLY_FAILURES:
                    progress.early_failures += 1
                    log.warning("a worker was broken before its program started: %s", error)
                    self.counters.retried += 1
                    continue
                progress.failures += 1
                log.warning("a worker failed (attempt %d): %s", progress.failures, error)
                if progress.failures == 1:
                    self.counters.retried += 1
                    continue
                if not await self._works():
                    self.counters.failed += 1
                    raise
                self.counters.blamed += 1
                results = _blamed(_rest(job, progress), error)
                self.counters.count(results)
                yield results, True
                return

    async def _attempt(
        self, job: dict[str, Any], progress: _Progress
    ) -> AsyncGenerator[tuple[list[dict[str, Any]], bool], None]:
        """Run the rest of a job on one slot until it is done, preempted or killed; raises `WorkerFailed`."""
        turn = await self._lanes.acquire(long=progress.long)
        ended = False
        try:
            async for results, last in turn.slot.run(job):
                # Our limits never SIGKILL a program without reporting it: it killed itself, or something outside did
                # (the kernel's OOM killer, an operator). In a second run only a self-inflicted kill recurs.
                sure = results if progress.kills else _before_a_kill(results)
                cut = len(sure) < len(results)
                progress.done += len(sure)
                progress.seconds += sum(result["busy"] for result in sure)
                progress.kills += cut
                progress.finished = last and not cut
                self.counters.count(sure)
                if last:
                    # Free the slot as soon as its work is done, not when the caller has taken the answer.
                    ended = True
                    self._lanes.finish(turn)
                yield sure, progress.finished
                if cut:
                    self.counters.retried += 1
                    # It has had its turn, and most killed programs kill themselves: the others go first. A machine that
                    # is short of memory needs the pause.
                    progress.long = True
                    await asyncio.sleep(PAUSE)
                    return
        except Preempted:
            ended, progress.long = True, True
            self.counters.preempted += 1
            self._lanes.finish(turn)
        except WorkerFailed as error:
            ended = True
            self._replace(turn, error)
            raise
        finally:
            # The caller stopped early: the worker is busy with an abandoned job.
            if not ended:
                self._spawn(self._drop(turn))

    def _give_up(self, slot: Slot) -> None:
        slot.cancel()

    async def _works(self) -> bool:
        """Whether a known good program passes on a slot of this server."""
        # As a long program, which is never preempted: the answer must not depend on the load.
        turn = await self._lanes.acquire(long=True)
        ended = False
        try:
            verdicts = [result["outcome"] async for results, _ in turn.slot.run(KNOWN_GOOD) for result in results]
            ended = True
            self._lanes.finish(turn)
        except (WorkerFailed, Preempted) as error:
            ended = True
            self._replace(turn, error)
            return False
        finally:
            if not ended:
                self._spawn(self._drop(turn))
        return verdicts == [outcomes.PASSED] * len(KNOWN_GOOD["cases"])

    async def _drop(self, turn: Turn) -> None:
        try:
            await turn.slot.drop()
        except WorkerFailed as error:
            self._replace(turn, error)
        else:
            self._lanes.finish(turn)

    def _replace(self, turn: Turn, error: Exception) -> None:
        if isinstance(error, ForeignAnswer):
            self.counters.foreign += 1
            log.error("slot %d is replaced: %s", turn.slot.number, error)
        self._lanes.forget(turn)
        if self._closed:
            return
        self.counters.replaced += 1
        turn.slot.kill()
        self._spawn(self._restart(turn.slot))

    def _spawn(self, work: Any) -> None:
        if self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _restart(self, slot: Slot) -> None:
        delay = 0.0
        while not self._closed:
            with contextlib.suppress(WorkerFailed):
                await slot.start()
                self._lanes.add(slot)
                return
            delay = min(10.0, delay * 2 or 0.2)
            await asyncio.sleep(delay)


def _rest(job: dict[str, Any], progress: _Progress) -> dict[str, Any]:
    """The rest of a job, with its remaining time."""
    rest = {**job, "kill_ends": not progress.kills}
    if "cases" in job and progress.done:
        total = whole_check(job["timeout"], len(job["cases"]), job["total_timeout"])
        rest |= {"cases": job["cases"][progress.done :], "total_timeout": max(0.001, total - progress.seconds)}
    return rest


def _before_a_kill(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results before the first whose program was killed by an unknown sender."""
    return results[: next((number for number, result in enumerate(results) if result.get("lost")), len(results))]


def _blamed(job: dict[str, Any], error: WorkerFailed) -> list[dict[str, Any]]:
    """The results of a job that made the sandbox fail twice while a known good program passes."""
    detail = f"the sandbox failed twice with this program and works with a known good one: {error}"[:500]
    result = {"outcome": outcomes.RUNTIME_ERROR, "detail": detail, "error_type": "SandboxMisuse", "time": 0.0}
    if "cases" in job:
        return [result] * len(job["cases"])
    streams = {"stdout": "", "stderr": detail, "stdout_truncated": False, "stderr_truncated": False}
    return [{**result, **streams, "return_code": 1, "error_line": detail, "cpu": 0.0, "files": []}]
