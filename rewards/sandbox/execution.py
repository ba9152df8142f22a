"""A running program seen from outside: its output, its messages, its end. Used by the worker."""

from __future__ import annotations

import json
import marshal
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rewards.sandbox import zygote
from rewards.sandbox.clock import Clock
from rewards.sandbox.codec import FrameBuffer
from rewards.sandbox.streams import READ_SIZE, Channel, Drain


@dataclass(frozen=True)
class Limits:
    """What one program may use: MiB of memory, all its processes together, and seconds of processor time a process."""

    memory_mb: int
    cpu_seconds: int


@dataclass(frozen=True)
class End:
    """How a child ended: wait status, why it was killed (zygote.NOT_KILLED, ...), seconds of processor time."""

    status: int
    killed: int
    cpu: float

    @property
    def code(self) -> int:
        """Exit code, negative for a signal."""
        return os.waitstatus_to_exitcode(self.status)


class SlotBroken(Exception):
    """A fork server does not answer as it must: this worker is replaced."""


class Server:
    """The worker's end of one fork server."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link

    def receive(self) -> tuple[bytes, list[int]]:
        """Read one message and the descriptors that came with it."""
        message, descriptors, _, _ = socket.recv_fds(self.link, zygote.MESSAGE_LIMIT, 64)
        if not message:
            raise SlotBroken("a fork server ended")
        return message, descriptors

    def order(self, text: bytes) -> None:
        """Send an order about the running child."""
        try:
            self.link.send(text)
        except OSError as error:
            raise SlotBroken(f"a fork server ended: {error}") from None


class Child:
    """One running child of a fork server, seen from outside."""

    def __init__(
        self,
        server: Server,
        payload: dict[str, Any],
        limits: Limits,
        output_limit: int,
        *,
        stdin: int | None = None,
        calls: socket.socket | None = None,
        flags: int = 0,
        fetch: list[str] | None = None,
        listen: bool = True,
    ) -> None:
        self.server = server
        self.stdout, self.stderr = Drain(output_limit), Drain(output_limit)
        self.control, theirs = socket.socketpair()
        self.frames = FrameBuffer()
        self.messages: list[Any] = []
        self.report: End | None = None
        self.fetched: list[int] = []
        self.channel: Channel | None = None
        self.over_limit = False
        self.timed_out = False
        self.ready = False
        self._control_open = True
        self._listen = listen
        self._killed = False
        null = os.open(os.devnull, os.O_RDONLY) if stdin is None else None
        given = [theirs.fileno(), null if stdin is None else stdin, self.stdout.writer, self.stderr.writer]
        message = zygote.LAUNCH.pack(limits.memory_mb, limits.cpu_seconds, flags)
        if fetch:
            message += json.dumps(fetch).encode()
        try:
            socket.send_fds(server.link, [message], [*given, *([calls.fileno()] if calls else [])])  # type: ignore[list-item]
        except OSError as error:
            raise SlotBroken(f"a fork server ended: {error}") from None
        finally:
            for descriptor in (null, self.stdout.writer, self.stderr.writer):
                if descriptor is not None:
                    os.close(descriptor)
            theirs.close()
        self.started = time.monotonic()
        # A child that could not be confined ends without reading its order: its report says so.
        self.control.settimeout(10)
        try:
            order = marshal.dumps(payload)
            self.control.sendall(len(order).to_bytes(4, "big") + order)
        except OSError:
            self._control_open = False
        self.control.setblocking(False)

    def attach(self, channel: Channel) -> None:
        """Watch a channel of the program's along with the child."""
        self.channel = channel

    def register(self, handlers: dict[int, Callable[[], None]]) -> None:
        """Add what is to be watched of this child: descriptor to handler."""
        if self.report is None:
            handlers[self.server.link.fileno()] = self._ended
        for drain in (self.stdout, self.stderr):
            if drain.open:
                handlers[drain.descriptor] = self.drain
        if self._control_open and self._listen:
            handlers[self.control.fileno()] = self._read_control
        if self.channel is not None and self.channel.open:
            handlers[self.channel.socket.fileno()] = self.channel.read

    def drain(self) -> None:
        """Take the output that is there now; a program that printed too much is killed."""
        self.stdout.read()
        self.stderr.read()
        if self.stdout.truncated and not self.over_limit:
            self.over_limit = True
            self.kill()

    def _read_control(self) -> None:
        try:
            data = self.control.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            self.messages += self.frames.feed(data)
        except ValueError:
            data = b""
        if not self.ready and self.messages:
            # The first message is sent before any code of the program runs, so it can't be made up.
            self.ready = self.messages.pop(0) is True
        if not data:
            self._control_open = False

    def _ended(self) -> None:
        self._note_end(*self.server.receive())

    def _note_end(self, message: bytes, descriptors: list[int]) -> None:
        _, status, killed, cpu = zygote.REPORT.unpack(message)
        self.report, self.fetched = End(status, killed, cpu), descriptors
        # Every writer is dead now: what is in the pipes is all there will be.
        self._drain_rest()
        if self._control_open:
            self._read_control()

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
        """Have the program and everything that it started killed; the report follows."""
        if self.report is None and not self._killed:
            self._killed = True
            self.server.order(zygote.KILL)

    def time_waited(self) -> float:
        """Seconds that the program could not run because processors were busy; 0.0 if it has just ended."""
        self.server.order(zygote.WAITED)
        message, descriptors = self.server.receive()
        kind, _, _, seconds = zygote.REPORT.unpack(message)
        if kind == zygote.WAITING:
            return float(seconds)
        # The report crossed our question; the fork server drops a question about no child.
        self._note_end(message, descriptors)
        return 0.0

    def take(self) -> dict[str, Any] | None:
        """The next message of the child, in order, or None."""
        return self.messages.pop(0) if self.messages else None

    def end(self, clock: Clock) -> End:
        """Kill what still runs and wait for the report; raises `SlotBroken` if the child never became a program."""
        if self.report is None:
            self.kill()
            if not clock.watch(lambda: self.report is not None, [self], time.monotonic() + 30):
                raise SlotBroken("a fork server does not report the end of its child")
        assert self.report is not None
        if not self.ready:
            raise SlotBroken(f"a program could not be confined: {self.stderr.text()[:500]}")
        return self.report

    def close(self) -> None:
        """Release descriptors."""
        for descriptor in self.fetched:
            os.close(descriptor)
        self.fetched = []
        self.control.close()
        self.stdout.close()
        self.stderr.close()
