"""The worker's fast path for tests that are one call and one comparison: no judge process is needed.

`assert f(1, [2]) == 3` is a call, a comparison and three values: `parse_assert` reads it without running test code, and
`called_run` sends the calls to the program. The worker never runs a program's code, and the program's process was
forked from one that never held a test, so the verdict is as private as the judge's. Large values, which could keep the
worker busy, are left to a judge.
"""

from __future__ import annotations

import ast
import builtins
import socket
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rewards.sandbox.inside import outcomes
from rewards.sandbox.inside.codec import QUICK, UNREADABLE, NotData, OutOfBounds, decode, encode, shown
from rewards.sandbox.inside.compare import same_value
from rewards.sandbox.inside.frames import BadFrame, frame, parse
from rewards.sandbox.inside.replies import Raised, Returned, read_reply
from rewards.sandbox.worker.execution import Child, Limits
from rewards.sandbox.worker.streams import Channel

_LIBRARY = frozenset(dir(builtins)) | sys.stdlib_module_names


@dataclass(frozen=True)
class Call:
    """One call and the required value.

    `relation`: "tolerant" (compare.py), "==", "is" (True, False or None), "true" or "false". `args`, `kwargs`: encoded.
    """

    entry_point: str
    args: Any
    kwargs: Any
    relation: str
    expected: Any = None

    @property
    def by_data(self) -> bool:
        """Whether it is of a `CallCase`, which a method of class Solution can answer."""
        return self.relation == "tolerant"

    def holds(self, value: Any) -> bool:
        """Whether a decoded value (plain data) satisfies the test."""
        if self.by_data:
            return same_value(value, self.expected)
        if self.relation == "==":
            return bool(value == self.expected)
        if self.relation == "is":
            return value is self.expected
        return bool(value) is (self.relation == "true")


def as_calls(cases: list[dict[str, Any]], setup: str, entry_points: frozenset[str] = frozenset()) -> list[Call] | None:
    """The cases as calls, or None when one of them (or the setup) needs code to run.

    A builtin or a library name in a test means the original even if the program redefines it: the judge ensures that.
    Only `entry_points` always mean the program's own functions.
    """
    if not _only_imports(setup):
        return None
    calls = []
    for case in cases:
        call = parse_assert(case["source"]) if "source" in case else _from_case(case)
        if call is None or ("source" in case and call.entry_point in _LIBRARY - entry_points):
            return None
        calls.append(call)
    return calls


def _from_case(case: dict[str, Any]) -> Call:
    return Call(case["entry_point"], case["args"], case["kwargs"], "tolerant", decode(case["expected"]))


@lru_cache(maxsize=256)
def _only_imports(setup: str) -> bool:
    try:
        body = ast.parse(setup).body
    except (SyntaxError, ValueError):
        return False
    return all(isinstance(statement, (ast.Import, ast.ImportFrom)) for statement in body)


@lru_cache(maxsize=8192)
def parse_assert(source: str) -> Call | None:
    """The call of a single assert with literal arguments, or None for any other test.

    Results are cached: counterfactual replays send the same tests with every program.
    """
    try:
        body = ast.parse(source).body
        if len(body) != 1 or not isinstance(body[0], ast.Assert):
            return None
        return _relation(body[0].test)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError, NotData):
        return None


def _relation(test: ast.expr) -> Call | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _call(test.operand, "false")
    if not isinstance(test, ast.Compare):
        return _call(test, "true")
    if len(test.ops) != 1:
        return None
    left, right = test.left, test.comparators[0]
    if isinstance(test.ops[0], ast.Is):
        expected = ast.literal_eval(right)
        return _call(left, "is", expected) if expected is None or isinstance(expected, bool) else None
    if not isinstance(test.ops[0], ast.Eq):
        return None
    if isinstance(left, ast.Call) and not isinstance(right, ast.Call):
        return _call(left, "==", ast.literal_eval(right))
    return None


def _call(node: ast.expr, relation: str, expected: Any = None) -> Call | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    name = node.func.id
    if any(word.arg is None for word in node.keywords):
        return None
    args = encode([ast.literal_eval(argument) for argument in node.args])
    kwargs = encode({str(word.arg): ast.literal_eval(word.value) for word in node.keywords})
    return Call(name, args, kwargs, relation, expected)


if TYPE_CHECKING:
    from rewards.sandbox.worker.checking import Check, WireResult

WINDOW_CALLS, WINDOW_BYTES = 32, 1 << 16
"""How many calls and bytes may be in flight: calls are independent, and each wait costs two context switches."""


class NeedsJudge(Exception):
    """An answer that only a judge should read."""


class RemoteValue(Exception):
    """The program returned an object of its own class: its statements about itself prove nothing."""


def _refuse_handle(body: Any) -> Any:
    raise RemoteValue(f"the program returned an object of its class {str(body[2])[:100]}")


def called_run(check: Check, calls: list[Call]) -> Generator[WireResult, None, None]:
    """Results of the calls up to and including the first one that kills the program's process.

    Raises `NeedsJudge` at a call whose answer a judge must read.
    """
    theirs, ours = socket.socketpair()
    limits = Limits(check.limits.memory_mb, int(check.total) + 2)
    payload = {"mode": "serve", "code": check.job["code"], "files": check.job.get("files")}
    child = None
    try:
        child = check.child(payload, limits, calls=theirs)
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
        """The program's next message; None if its channel closed or its time ran out before a valid one arrived."""
        channel, child = self.channel, self.child

        def over() -> bool:
            return bool(channel.pending) or not channel.open or child.report is not None

        self.timed_out = not self.check.limited(over, [child])
        if channel.open and not channel.pending:
            channel.read()
        if channel.misused:
            child.kill()  # no need to wait for its exit
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

    def results(self, calls: list[Call]) -> Iterator[WireResult]:
        frames = [
            frame(
                {
                    "op": "run",
                    "name": call.entry_point,
                    "args": call.args,
                    "kwargs": call.kwargs,
                    "method": call.by_data,
                }
            )
            for call in calls
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


def _verdict(call: Call, reply: Returned | Raised) -> WireResult:
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
            raise NeedsJudge from None  # only a judge can ask for an object's truth value
        return {"outcome": outcomes.WRONG_ANSWER, "detail": str(refusal)}
    except UNREADABLE as unreadable:
        detail = f"returned a value that can't be read: {type(unreadable).__name__}"
        return {"outcome": outcomes.WRONG_ANSWER, "detail": detail}
