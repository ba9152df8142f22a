"""The server's view of one worker process: start it, send it jobs, read its results, kill it."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewards.sandbox.cases import MEMORY_MB, whole_check
from rewards.sandbox.inside.frames import BadFrame, FrameBuffer, frame, parse
from rewards.sandbox.isolation.namespaces import python_folders
from rewards.sandbox.worker.execution import LEAST_PATIENCE, PATIENCE
from rewards.sandbox.worker.languages import TOOL_PATH

GRACE = LEAST_PATIENCE + 10.0
"""Seconds beyond a job's own limits after which its worker counts as stalled."""
STARTUP = 60.0
DROP_SECONDS = 10.0
"""Seconds that a worker may take to stop an abandoned program."""
FIRST_USER = 1_610_612_736
USERS_PER_SLOT = 8
MOST_SLOTS = 256
MAX_RESULT = 256 << 20
"""Maximum bytes of one message of a worker: streams, fetched files and a chunk of cases fit with room to spare."""

# The worker must not import what `rewards` and `rewards.sandbox` import for their users: it stays small and forks fast.
_BOOT = """
import os, sys, types
sys.path.remove("")
os.register_at_fork = lambda **_: None  # zygote.preload explains and restores it
given, package = sys.stdin.read().split("\\n")
if given != "3":
    os.dup2(int(given), 3)
    os.close(int(given))
for name, path in (("rewards", package), ("rewards.sandbox", package + "/sandbox")):
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module
from rewards.sandbox.worker.worker import main
main()
"""


class Preempted(Exception):
    """The job was preempted on request; its slot is free."""


class WorkerFailed(Exception):
    """A worker died, stalled or sent an invalid message: the job did not finish."""


class FailedBeforeStart(WorkerFailed):
    """The worker failed before it launched a program of the job."""


class ForeignAnswer(FailedBeforeStart):
    """A worker's message belongs to another job: nothing that this worker sends counts from here on."""


@dataclass
class SlotSettings:
    """Settings shared by all slots of a server."""

    isolate: bool = True
    quota_mb: int = 64
    memory_mb: int = MEMORY_MB
    queue: int = 4096


class _Link(asyncio.Protocol):
    """The front's end of a worker's socket: complete messages, one waiter."""

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
            self._messages.extend(map(parse, self._frames.feed(data)))
        except BadFrame as error:
            self.fail(error)
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(exc or EOFError("the worker closed its socket"))

    def fail(self, error: Exception) -> None:
        """Make the current and all later waits raise an error."""
        self._failure = self._failure or error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def receive(self) -> Any:
        """The next message; raises `WorkerFailed` after `fail`, once earlier messages are consumed."""
        while not self._messages:
            if self._failure is not None:
                raise WorkerFailed(f"a worker died: {self._failure!r}")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._messages.popleft()


class Slot:
    """One worker process and the socket to it.

    Every job has a random token, which the worker repeats in each message about it. A message with another token is
    never a result of this job, whatever went wrong: it raises `ForeignAnswer`, and the pool replaces the worker. The
    token stays in the server and the worker, out of reach of programs.
    """

    def __init__(self, number: int, settings: SlotSettings) -> None:
        self.number = number
        self.settings = settings
        self.active: list[str] = []
        self.missing: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._link = _Link()
        self._token: str | None = None
        """The token of the job that the worker has; None once its last message is consumed."""
        self._cancelling = False

    async def start(self) -> None:
        """Start the process and wait until its fork servers are ready; raises `WorkerFailed`."""
        ours = self._spawn()
        self._link = _Link()
        self._token, self._cancelling = None, False
        await asyncio.get_running_loop().create_connection(lambda: self._link, sock=ours)
        try:
            hello = await anext(self._exchange(self._worker_settings(), STARTUP))
            self.active, self.missing = hello["active"], hello["missing"]
        except (WorkerFailed, KeyError) as error:
            self.kill()
            raise WorkerFailed(f"a worker did not start: {error}") from None

    def _spawn(self) -> socket.socket:
        """Start the process, which takes about a millisecond, and return our end of its socket."""
        ours, theirs = socket.socketpair()
        package = str(Path(__file__).resolve().parents[2])
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
            # Not as arguments: programs inside could read those, and they must not learn paths of this machine.
            self.process.stdin.write(f"{theirs.fileno()}\n{package}".encode())
            self.process.stdin.close()
        return ours

    def _worker_settings(self) -> dict[str, Any]:
        # Servers on one machine must not share user ids: limits and signals depend on them.
        user = FIRST_USER + (os.getpid() % 32768 * MOST_SLOTS + self.number % MOST_SLOTS) * USERS_PER_SLOT
        return {
            "user": user,
            "isolate": self.settings.isolate,
            "quota_mb": self.settings.quota_mb,
            "python": python_folders(),
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
        """Send a message and yield the answers; raises `WorkerFailed` if one takes longer than `allowed` seconds."""
        loop = asyncio.get_running_loop()
        stalled = TimeoutError(f"stalled for {allowed:.0f} s")
        self._link.transport.write(frame(message))
        while True:
            timer = loop.call_later(allowed, self._link.fail, stalled)
            try:
                answer = await self._link.receive()
            finally:
                timer.cancel()
            yield answer

    async def run(self, job: dict[str, Any]) -> AsyncIterator[tuple[list[dict[str, Any]], bool]]:
        """A job's results in chunks, each with whether it is the last; raises `WorkerFailed` if the last is missing."""
        if self._token is not None:
            raise FailedBeforeStart("its worker has another job")
        cases = job.get("cases")
        seconds = job["timeout"] if cases is None else whole_check(job["timeout"], len(cases), job["total_timeout"])
        allowed = (seconds + job["timeout"] + job["compile_timeout"]) * PATIENCE + GRACE
        self._token = secrets.token_hex(8)
        async for message in self._exchange({**job, "token": self._token}, allowed):
            self._verify(message)
            if "cancelled" in message:
                self._token, self._cancelling = None, False
                raise Preempted
            if "results" not in message:
                raise (FailedBeforeStart if message.get("before") else WorkerFailed)(message["broken"])
            if message["done"]:
                await self._settle()
            yield message["results"], message["done"]
            if message["done"]:
                return

    def _verify(self, message: dict[str, Any]) -> None:
        """Raise `ForeignAnswer` unless a message is about the current job."""
        if message.get("token") != self._token:
            raise ForeignAnswer(f"a worker sent an answer to another job: {str(message)[:200]}")

    def cancel(self) -> None:
        """Preempt the running job; `run` then raises `Preempted`, unless the job has just ended. Without a job: do
        nothing, for the worker's answer would be read by the next one."""
        if self._token is not None and not self._cancelling:
            self._cancelling = True
            self._link.transport.write(frame({"cancel": self._token}))

    async def _settle(self) -> None:
        """Consume what is left of an ended job: the answer to a cancellation that crossed its end."""
        while self._cancelling:
            message = await self._link.receive()
            self._verify(message)
            self._cancelling = "cancelled" not in message
        self._token = None

    async def drop(self) -> None:
        """Cancel the abandoned running job; raises `WorkerFailed` when the worker does not respond."""
        self.cancel()
        unresponsive = TimeoutError(f"the job was not cancelled within {DROP_SECONDS:.0f} s")
        timer = asyncio.get_running_loop().call_later(DROP_SECONDS, self._link.fail, unresponsive)
        try:
            await self._settle()
        finally:
            timer.cancel()

    def kill(self) -> None:
        """Kill the process; its fork servers and all programs die with it."""
        if self._link.transport is not None:
            self._link.transport.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
