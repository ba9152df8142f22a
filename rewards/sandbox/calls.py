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
from rewards.sandbox.codec import QUICK, UNREADABLE, OutOfBounds, decode, shown
from rewards.sandbox.execution import Child, Limits
from rewards.sandbox.frames import BadFrame, frame, parse
from rewards.sandbox.literal import Call
from rewards.sandbox.replies import Raised, Returned, read_reply
from rewards.sandbox.streams import Channel

if TYPE_CHECKING:
    from rewards.sandbox.checking import Check, Result

WINDOW_CALLS, WINDOW_BYTES = 32, 1 << 16
"""How many calls are sent ahead of the answers: they do not depend on each other, and each wait costs two switches."""


class NeedsJudge(Exception):
    """An answer that only a judge should read."""


class RemoteValue(Exception):
    """The program returned an object of its own class: nothing that it says about itself proves anything."""


def _refuse_handle(body: Any) -> Any:
    raise RemoteValue(f"the program returned an object of its class {str(body[2])[:100]}")


def called_run(check: Check, calls: list[Call]) -> Generator[Result, None, None]:
    """Results of the calls up to the first that ends the program's process, that one included.

    Raises `NeedsJudge` at a call whose answer a judge must read.
    """
    theirs, ours = socket.socketpair()
    limits = Limits(check.limits.memory_mb, int(check.total) + 2)
    payload = {"mode": "serve", "code": check.job["code"], "files": check.job.get("files")}
    child = None
    try:
        child = Child(check.programs, payload, limits, check.output_limit, calls=theirs)
        theirs.close()
        session = _Session(check, child, Channel(ours))
        loaded = session.answer()
        if isinstance(loaded, Returned):
            yield from session.results(calls)
            return
        failure = check.load_failure(child, loaded, session.timed_out)
        for _ in calls:
            yield {**failure, "time": 0.0}
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
        channel.expected = 1
        child.attach(channel)

    def answer(self) -> Returned | Raised | None:
        """The program's next message; None when its channel or its time ended before one of ours came."""
        channel, child = self.channel, self.child

        def over() -> bool:
            return bool(channel.pending) or not channel.open or child.report is not None

        self.timed_out = not self.check.limited(over, [child])
        if channel.open and not channel.pending:
            channel.read()
        if channel.misused:
            child.kill()  # it need not be waited for
        body = channel.take()
        if body is None:
            if channel.oversized:
                raise NeedsJudge
            return None
        try:
            reply = read_reply(parse(body))
        except BadFrame:
            child.kill()
            return None
        return None if not isinstance(reply, (Returned, Raised)) else reply

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
            self.channel.expected += len(part)
            self.channel.send(b"".join(part))
            reply = self.answer()
            elapsed = time.monotonic() - start
            if reply is None:
                yield {**self.check.death(self.child, self.timed_out), "time": elapsed}
                return
            yield {**_verdict(call, reply), "time": elapsed}


def _verdict(call: Call, reply: Returned | Raised) -> Result:
    if isinstance(reply, Raised):
        outcome = outcomes.MEMORY if reply.out_of_memory else outcomes.RUNTIME_ERROR
        return {"outcome": outcome, "detail": reply.line, "error_type": reply.type}
    try:
        value = decode(reply.form, _refuse_handle, QUICK)
        if call.holds(value):
            return {"outcome": outcomes.PASSED}
        wanted = "" if call.relation in ("true", "false") else f", expected {shown(call.expected)}"
        return {"outcome": outcomes.WRONG_ANSWER, "detail": f"returned {shown(value)}{wanted}"}
    except OutOfBounds:
        raise NeedsJudge from None
    except RemoteValue as refusal:
        if call.relation in ("true", "false"):
            raise NeedsJudge from None  # whether an object is true, a judge asks
        return {"outcome": outcomes.WRONG_ANSWER, "detail": str(refusal)}
    except UNREADABLE as unreadable:
        return {"outcome": outcomes.WRONG_ANSWER, "detail": f"returned what can't be read: {type(unreadable).__name__}"}
