"""The worker's view of running programs: `Child` holds output, messages and exit; `Clock` waits and charges time."""

from __future__ import annotations

import json
import marshal
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from rewards.sandbox.inside import program
from rewards.sandbox.inside.frames import FrameBuffer, FrameTooLarge, receive_frame
from rewards.sandbox.worker import zygote
from rewards.sandbox.worker.streams import READ_SIZE, Channel, Drain

Handlers = dict[int, tuple[int, Callable[[], object]]]
"""Descriptors to poll: descriptor -> (poll(2) events, handler)."""
NOTICEABLE = 0.02
"""Seconds of elapsed time above which the worker asks how long a program waited for a CPU."""
PATIENCE = 4.0
LEAST_PATIENCE = 20.0
"""A program that waits for a CPU gets more wall time: up to PATIENCE times its limit and this many seconds beyond."""


class FrontGone(Exception):
    """The server closed our socket: the worker shuts down."""


def seconds_stolen() -> float:
    """Seconds since boot in which the host gave this virtual machine no CPU; 0.0 if it has no host."""
    try:
        with open("/proc/stat", "rb") as file:
            return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def _seconds_withheld() -> float:
    """Seconds in which the host gave this machine no CPU, or this machine the worker, which then notices ends late."""
    return seconds_stolen() + zygote.seconds_delayed("self")


class Cancelled(Exception):
    """The server cancelled the running job."""


class Clock:
    """Waits for children while watching the server's socket: a close stops the worker, a message cancels the job."""

    def __init__(self, front: socket.socket) -> None:
        self._front = front
        self.token: str | None = None
        """The token of the current job; only a cancellation of this job may arrive while it runs."""
        self.charged = 0.0
        """Total seconds that `limited` waited for programs, at most its limit each time."""

    def watch(
        self, done: Callable[[], bool], children: list[Child], deadline: float, *, cancellable: bool = True
    ) -> bool:
        """Serve the children's output until `done()` or the deadline (monotonic seconds); returns whether it was done.

        `cancellable`: raise `Cancelled` when the server cancels the job; off during cleanup.
        """
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
        if order != {"cancel": self.token}:
            raise WorkerUnusable("the server sent another message than a cancellation of the running job")
        raise Cancelled

    def limited(self, done: Callable[[], bool], children: list[Child], seconds: float) -> bool:
        """Like `watch`, for a program's time limit of `seconds`.

        Time spent waiting for a CPU, because of other processes or other machines on the same host, is not charged.
        """
        start = time.monotonic()
        before = _seconds_withheld() + sum(child.waited for child in children)

        def waited() -> float:
            return _seconds_withheld() + sum(child.time_waited() for child in children) - before

        deadline, latest = start + seconds, start + seconds * PATIENCE + LEAST_PATIENCE
        try:
            while not self.watch(done, children, deadline):
                deadline = min(start + seconds + waited(), latest)
                if deadline <= time.monotonic() + 0.001:
                    return done()
            return True
        finally:
            elapsed = time.monotonic() - start
            if elapsed > NOTICEABLE:
                elapsed -= waited()
            self.charged += min(seconds, max(0.0, elapsed))


MAX_VERDICT = 1 << 16
"""Maximum bytes of one verdict of a judge."""


@dataclass(frozen=True)
class Limits:
    """Limits of one program: MiB of memory for all its processes together, CPU seconds per process."""

    memory_mb: int
    cpu_seconds: int


@dataclass(frozen=True)
class End:
    """The end of a child: wait status, reason of the kill (zygote.NOT_KILLED, ...), CPU seconds."""

    status: int
    killed: int
    cpu: float

    @property
    def code(self) -> int:
        """Exit code, negative for a signal."""
        return os.waitstatus_to_exitcode(self.status)

    @property
    def lost(self) -> bool:
        """Whether a SIGKILL that we did not send killed it: its own, or one from outside (the kernel, an operator)."""
        return self.killed == zygote.NOT_KILLED and self.code == -signal.SIGKILL


class WorkerUnusable(Exception):
    """A fork server or a judge failed, or a message was invalid; the server replaces this worker."""


class ForkServerGone(WorkerUnusable):
    """A fork server had exited before it got a program: no program of this job caused it."""


class ServerHandle:
    """The worker's end of one fork server. launched: whether it has started a program or judge of the current job."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.launched = False

    def receive(self) -> tuple[bytes, list[int]]:
        """Read one message and its descriptors."""
        message, descriptors, _, _ = socket.recv_fds(self.link, zygote.MESSAGE_LIMIT, 64)
        if not message:
            raise WorkerUnusable("a fork server ended")
        return message, descriptors

    def order(self, text: bytes) -> None:
        """Send an order about the running child."""
        try:
            self.link.send(text)
        except OSError as error:
            raise WorkerUnusable(f"a fork server ended: {error}") from None


class Child:
    """One running child of a fork server, as its worker handles it.

    On the control channel, a program's messages are counted (`runs_done`: one byte per run) and a judge's are stored
    unparsed (`verdicts`); anything else closes the channel.
    """

    def __init__(
        self,
        server: ServerHandle,
        payload: dict[str, Any],
        limits: Limits,
        output_limit: int,
        *,
        stdin: int | None = None,
        calls: socket.socket | None = None,
        flags: int = 0,
        fetch: list[str] | None = None,
        judge: bool = False,
        executed: int | None = None,
    ) -> None:
        self.server = server
        self.stdout, self.stderr = Drain(output_limit), Drain(output_limit)
        self.control, theirs = socket.socketpair()
        self.runs_done = 0
        self.verdicts: list[bytes] = []
        self._frames = FrameBuffer(MAX_VERDICT) if judge else None
        self.report: End | None = None
        self.fetched: list[int] = []
        self.channel: Channel | None = None
        self.over_limit = False
        self.waited = 0.0
        self.ready = False
        self._control_open = True
        self._killed = False
        # Random: the fork server's reports repeat it, so that no report can be taken for another child's.
        self.token = os.urandom(8)
        flags |= zygote.COVERED if executed is not None else 0
        message = zygote.LAUNCH.pack(self.token, limits.memory_mb, limits.cpu_seconds, flags)
        if fetch:
            message += json.dumps(fetch).encode()
        more = [calls.fileno()] if calls else []
        self._launch(message, theirs, stdin, more if executed is None else [*more, executed])
        self.started = time.monotonic()
        self._give(payload)

    def _launch(self, message: bytes, theirs: socket.socket, stdin: int | None, more: list[int]) -> None:
        """Have the fork server launch the child with these descriptors; closes our copies of the child's ends.

        theirs: the child's end of the control channel. more: further descriptors of the child.
        """
        null = os.open(os.devnull, os.O_RDONLY) if stdin is None else None
        given = [theirs.fileno(), null if stdin is None else stdin, self.stdout.writer, self.stderr.writer]
        try:
            socket.send_fds(self.server.link, [message], [*given, *more])  # type: ignore[list-item]
        except OSError as error:
            gone = WorkerUnusable if self.server.launched else ForkServerGone
            raise gone(f"a fork server ended: {error}") from None
        finally:
            for descriptor in (null, self.stdout.writer, self.stderr.writer):
                if descriptor is not None:
                    os.close(descriptor)
            theirs.close()
        self.server.launched = True

    def _give(self, payload: dict[str, Any]) -> None:
        """Send the child its order. One that could not be confined exits without reading it: its report shows that."""
        self.control.settimeout(10)
        try:
            order = marshal.dumps(payload)
            self.control.sendall(len(order).to_bytes(4, "big") + order)
        except OSError:
            self._control_open = False
        self.control.setblocking(False)

    def attach(self, channel: Channel) -> None:
        """Poll the program's channel along with the child."""
        self.channel = channel

    def register(self, handlers: Handlers) -> None:
        """Add this child's descriptors and their handlers."""
        if self.report is None:
            handlers[self.server.link.fileno()] = (select.POLLIN, self._ended)
        for drain in (self.stdout, self.stderr):
            if drain.open:
                handlers[drain.descriptor] = (select.POLLIN, self.drain)
        if self._control_open:
            handlers[self.control.fileno()] = (select.POLLIN, self._read_control)
        if self.channel is not None and self.channel.open:
            events = select.POLLIN | (select.POLLOUT if self.channel.unsent else 0)
            handlers[self.channel.socket.fileno()] = (events, self.channel.serve)

    def drain(self) -> None:
        """Read the available output; kill a program that printed too much."""
        self.stdout.read()
        self.stderr.read()
        if self.stdout.truncated and not self.over_limit:
            self.over_limit = True
            self.kill()

    def _read_control(self) -> bool:
        """Read one chunk; returns whether there may be more."""
        try:
            data = self.control.recv(READ_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data and not self.ready:
            # The first byte is sent before any code of the program runs, so it can't be forged.
            self.ready, data = data[:1] == program.READY, data[1:]
            if not data:
                return True
        self._control_open = self._heard(data)
        return self._control_open

    def _heard(self, data: bytes) -> bool:
        """Handle data from a confined child; returns whether the channel stays open."""
        if self._frames is None:
            self.runs_done += len(data)
            return bool(data) and not data.strip(program.DONE)
        try:
            self.verdicts += self._frames.feed(data)
        except FrameTooLarge:
            return False
        return bool(data)

    def _ended(self) -> None:
        if not self._hear_server():
            raise WorkerUnusable("a fork server sent an answer without a request")

    def _hear_server(self) -> bool:
        """Whether the next message about this child is its end; raises `WorkerUnusable` for another child's."""
        message, descriptors = self.server.receive()
        try:
            token, kind, status, killed, figure = zygote.REPORT.unpack(message)
        except struct.error:
            raise WorkerUnusable(f"a fork server sent {message[:100]!r} instead of a report") from None
        if token != self.token:
            raise WorkerUnusable("a fork server sent the report of another child")
        if kind == zygote.WAITING:
            self.waited = figure
            return False
        self._note_end(End(status, killed, figure), descriptors)
        return True

    def _note_end(self, report: End, descriptors: list[int]) -> None:
        self.report, self.fetched = report, descriptors
        # Every writer is dead: the pipes hold all remaining output.
        self._drain_rest()
        while self._control_open and self._read_control():
            pass

    def _drain_rest(self) -> None:
        for drain in (self.stdout, self.stderr):
            while drain.open:
                before = drain.truncated, len(drain.kept), drain.tail
                drain.read()
                if drain.open and before == (drain.truncated, len(drain.kept), drain.tail):
                    break
            drain.close()
        self.over_limit = self.over_limit or self.stdout.truncated

    def kill(self) -> None:
        """Kill the program and everything that it started; the report follows."""
        if self.report is None and not self._killed:
            self._killed = True
            self.server.order(zygote.KILL)

    def time_waited(self) -> float:
        """Seconds since its start in which the program waited for a busy CPU, as far as known."""
        if self.report is not None:
            return self.waited
        self.server.order(zygote.WAITED)
        # If the report crossed our question, it is the answer: the fork server ignores a question about a child that
        # has ended.
        self._hear_server()
        return self.waited

    def end(self, clock: Clock) -> End:
        """Kill remaining processes and wait for the report; raises `WorkerUnusable` if the child was never confined."""
        if self.report is None:
            self.kill()
            # Not cancellable: an unread report would be mistaken for the next child's.
            if not clock.watch(lambda: self.report is not None, [self], time.monotonic() + 30, cancellable=False):
                raise WorkerUnusable("a fork server does not report the end of its child")
        assert self.report is not None
        if not self.ready and self.report.killed == zygote.NOT_KILLED:
            raise WorkerUnusable(f"a program could not be confined ({self.report}): {self.stderr.text()[:500]}")
        return self.report

    def close(self) -> None:
        """Release descriptors."""
        for descriptor in self.fetched:
            os.close(descriptor)
        self.fetched = []
        self.control.close()
        self.stdout.close()
        self.stderr.close()
