"""The server's worker processes: start, hand out work, notice death and stalls, replace."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from rewards.sandbox import namespaces
from rewards.sandbox.codec import FrameBuffer, frame
from rewards.sandbox.languages import TOOL_PATH

log = logging.getLogger("rewards.sandbox")

GRACE = 30.0
"""Seconds beyond a job's own limits after which its worker counts as stuck."""
STARTUP = 60.0
FIRST_USER = 1_610_612_736
USERS_PER_SLOT = 8
PATIENCE = 4.0
MAX_RESULT = 256 << 20
"""Bytes of one message of a worker: streams, fetched files and a chunk of cases fit with room."""

# The worker must not import what `rewards` and `rewards.sandbox` import for their users: it stays small, and forks fast.
_BOOT = """
import os, sys, types
sys.path.remove("")
os.register_at_fork = lambda **_: None  # zygote.preload says why, and puts it back
given, package = sys.stdin.read().split("\\n")
if given != "3":
    os.dup2(int(given), 3)
    os.close(int(given))
for name, path in (("rewards", package), ("rewards.sandbox", package + "/sandbox")):
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module
from rewards.sandbox.worker import main
main()
"""


class Busy(Exception):
    """The queue is full. `retry_after`: seconds after which to try again."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("the queue is full")
        self.retry_after = retry_after


class SlotFailed(Exception):
    """A worker died, stalled or gave its slot up: the job was not run to its end."""


@dataclass
class Settings:
    """What every slot of a server has in common."""

    isolate: bool = True
    quota_mb: int = 64
    memory_mb: int = 1024
    queue: int = 4096


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


class _Link(asyncio.Protocol):
    """The front's end of a worker's socket: whole messages, one waiter."""

    def __init__(self) -> None:
        self.transport: Any = None
        self._frames = FrameBuffer(MAX_RESULT)
        self._messages: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._messages.extend(self._frames.feed(data))
        except ValueError as error:
            self.fail(error)
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(exc or EOFError("the worker closed its socket"))

    def fail(self, error: Exception) -> None:
        """End every wait, this one and later ones, with an error."""
        self._failure = self._failure or error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def receive(self) -> Any:
        """The next message; raises what `fail` was given, once the messages before it are taken."""
        while not self._messages:
            if self._failure is not None:
                raise SlotFailed(f"a worker died: {self._failure!r}")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._messages.popleft()


class Slot:
    """One worker process and the socket to it."""

    def __init__(self, number: int, settings: Settings) -> None:
        self.number = number
        self.settings = settings
        self.active: list[str] = []
        self.missing: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._link = _Link()

    async def start(self) -> None:
        """Start the process and wait until its fork servers are ready; raises `SlotFailed`."""
        ours = self._spawn()
        self._link = _Link()
        await asyncio.get_running_loop().create_connection(lambda: self._link, sock=ours)
        try:
            hello = await anext(self._exchange(self._worker_settings(), STARTUP))
            self.active, self.missing = hello["active"], hello["missing"]
        except (SlotFailed, KeyError) as error:
            self.kill()
            raise SlotFailed(f"a worker did not start: {error}") from None

    def _spawn(self) -> socket.socket:
        """Start the process (a millisecond's work) and return our end of its socket."""
        ours, theirs = socket.socketpair()
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-s", "-S", "-c", _BOOT],
                cwd="/",
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                env={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8"},
                start_new_session=True,
            )
            assert self.process.stdin is not None
            # Not as arguments: those can be read from inside, and a path of this machine is nobody's business there.
            self.process.stdin.write(f"{theirs.fileno()}\n{package}".encode())
            self.process.stdin.close()
        return ours

    def _worker_settings(self) -> dict[str, Any]:
        # Servers of one machine must not share user ids: limits and signals go by them.
        user = FIRST_USER + (os.getpid() % 32768 * 64 + self.number % 64) * USERS_PER_SLOT
        return {
            "user": user,
            "isolate": self.settings.isolate,
            "quota_mb": self.settings.quota_mb,
            "python": namespaces.python_folders(),
            "packages": [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))],
            "environment": {
                "PATH": TOOL_PATH,
                "HOME": "/tmp",
                "LANG": "C.UTF-8",
                "PYTHONHASHSEED": "0",
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            },
        }

    async def _exchange(self, message: Any, allowed: float) -> AsyncIterator[Any]:
        """Send a message and give the answers; raises `SlotFailed` when the next takes longer than `allowed` seconds."""
        loop = asyncio.get_running_loop()
        stuck = TimeoutError(f"stuck for {allowed:.0f} s")
        self._link.transport.write(frame(message))
        while True:
            timer = loop.call_later(allowed, self._link.fail, stuck)
            try:
                answer = await self._link.receive()
            finally:
                timer.cancel()
            yield answer

    async def run(self, job: dict[str, Any]) -> AsyncIterator[tuple[list[dict[str, Any]], bool]]:
        """Results of a job in chunks, each with whether it is the last; raises `SlotFailed` when there is no last one."""
        steps = 1 + len(job.get("cases") or [])
        allowed = (job["timeout"] * steps + job["compile_timeout"]) * PATIENCE + GRACE
        async for message in self._exchange(job, allowed):
            if "results" not in message:
                raise SlotFailed(message["broken"])
            yield message["results"], message["done"]
            if message["done"]:
                return

    def kill(self) -> None:
        """End the process; its fork servers and all programs end with it."""
        if self._link.transport is not None:
            self._link.transport.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


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
        """Results of an admitted job in chunks, each with whether it is the last; a job whose worker fails is run once more elsewhere.

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
                    done += len(results)
                    self.counters.count(results)
                    if last:
                        # The slot is free as soon as its work is done, not when the caller has taken the answer.
                        healthy = True
                        self._release(slot)
                    yield results, last
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
