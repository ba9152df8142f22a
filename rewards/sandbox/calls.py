"""The worker's short way for tests that are one call and one comparison of values: no judge process is needed.

The worker has never run a program's code and the program's process was forked from one that never held a test, so the
verdict is as private as the judge's. Values that are large, and so could keep the worker busy, are left to a judge.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from rewards.sandbox import outcomes
from rewards.sandbox.codec import UNREADABLE, decode, frame
from rewards.sandbox.execution import Child, Limits
from rewards.sandbox.literal import Call
from rewards.sandbox.streams import Channel

if TYPE_CHECKING:
    from rewards.sandbox.checking import Check, Result

WINDOW_CALLS, WINDOW_BYTES = 32, 1 << 16
"""How many calls are sent ahead of the answers: they do not depend on each other, and each wait costs two switches."""


class TooLarge(Exception):
    """An answer that only a judge should read."""


class RemoteValue(Exception):
    """The program returned an object of its own class: nothing that it says about itself proves anything."""


def _refuse_handle(body: Any) -> Any:
    raise RemoteValue(f"the program returned an object of its class {str(body[1])[:100]}")


def called_run(check: Check, calls: list[Call]) -> Generator[Result, None, None]:
    """Results of the calls up to the first that ends the program's process, that one included.

    Raises `TooLarge` at a call whose answer a judge must read.
    """
    theirs, ours = socket.socketpair()
    limits = Limits(check.limits.memory_mb, int(check.seconds * (len(calls) + 1)) + 2)
    payload = {"mode": "serve", "code": check.job["code"], "files": check.job.get("files")}
    child = None
    try:
        child = Child(check.programs, payload, limits, check.output_limit, calls=theirs, listen=False)
        theirs.close()
        session = _Session(check, child, Channel(ours))
        loaded = session.answer()
        if loaded is None or "x" in loaded:
            failure = check.load_failure(child, loaded["x"] if loaded else None, session.timed_out)
            for _ in calls:
                yield {**failure, "time": 0.0}
            return
        yield from session.results(calls)
    finally:
        theirs.close()
        ours.close()
        if child is not None:
            child.channel = None
            child.end(check.clock)
            child.close()


class _Session:
    def __init__(self, check: Check, child: Child, channel: Channel) -> None:
        self.check = check
        self.child = child
        self.channel = channel
        self.timed_out = False
        child.attach(channel)

    def answer(self) -> dict[str, Any] | None:
        """The program's next message; None when its channel or its time ended before it came."""
        channel, child = self.channel, self.child

        def over() -> bool:
            return bool(channel.messages) or not channel.open or child.report is not None

        self.timed_out = not self.check.clock.limited(over, [child], self.check.seconds)
        if channel.open:
            channel.read()
        if channel.oversized:
            raise TooLarge
        message = channel.take()
        return message if isinstance(message, dict) else None

    def results(self, calls: list[Call]) -> Iterator[Result]:
        frames = [
            frame({"op": "run", "name": call.entry_point, "args": call.args, "kwargs": call.kwargs}) for call in calls
        ]
        sent = 0
        ahead = 0
        for index, call in enumerate(calls):
            ahead -= len(frames[index - 1]) if index else 0
            part = []
            while sent < len(frames) and sent - index < WINDOW_CALLS:
                if ahead and ahead + len(frames[sent]) > WINDOW_BYTES:
                    break
                ahead += len(frames[sent])
                part.append(frames[sent])
                sent += 1
            start = time.monotonic()
            self._send(b"".join(part))
            message = self.answer()
            elapsed = time.monotonic() - start
            if message is None:
                yield {**self.check.death(self.child, self.timed_out), "time": elapsed}
                return
            yield {**_verdict(call, message), "time": elapsed}

    def _send(self, data: bytes) -> None:
        # The program reads whenever it has nothing to answer; one that does not is out of time or gone.
        if data:
            self.channel.socket.settimeout(self.check.seconds)
            try:
                self.channel.socket.sendall(data)
            except OSError:
                self.channel.open = False
            self.channel.socket.setblocking(False)


def _verdict(call: Call, message: dict[str, Any]) -> Result:
    error = message.get("x")
    if isinstance(error, dict):
        outcome = outcomes.MEMORY if error.get("type") == "MemoryError" else outcomes.RUNTIME_ERROR
        return {"outcome": outcome, "detail": str(error.get("line"))[:2000], "error_type": str(error.get("type"))[:200]}
    try:
        value = decode(message.get("v"), _refuse_handle)
        if call.holds(value):
            return {"outcome": outcomes.PASSED}
        wanted = "" if call.relation in ("true", "false") else f", expected {call.expected!r:.200}"
        return {"outcome": outcomes.WRONG_ANSWER, "detail": f"returned {value!r:.200}{wanted}"}
    except RemoteValue as refusal:
        return {"outcome": outcomes.WRONG_ANSWER, "detail": str(refusal)}
    except UNREADABLE as unreadable:
        return {"outcome": outcomes.WRONG_ANSWER, "detail": f"returned what can't be read: {type(unreadable).__name__}"}
