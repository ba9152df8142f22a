"""The worker's fast path for tests that only call functions and compare what they return: no judge process is needed.

`assert f(1, [2]) == 3` is a call, a comparison and three values, `assert f(1)[0] == 3` the same of a part of the value,
`assert (f(1), g(2)) == (3, 4)` two calls and their values: `parse_assert` reads them without running test code, and
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
import warnings
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rewards.sandbox.inside import outcomes
from rewards.sandbox.inside.codec import QUICK, UNREADABLE, NotData, OutOfBounds, decode, encode, shown
from rewards.sandbox.inside.compare import same_value
from rewards.sandbox.inside.frames import BadFrame, frame, parse
from rewards.sandbox.inside.replies import Raised, Returned, read_reply
from rewards.sandbox.worker.check import Check, WireResult
from rewards.sandbox.worker.execution import Child, Limits
from rewards.sandbox.worker.streams import Channel

_LIBRARY = frozenset(dir(builtins)) | sys.stdlib_module_names


@dataclass(frozen=True)
class Call:
    """One call of a function of the program; `args`, `kwargs`: encoded."""

    entry_point: str
    args: Any
    kwargs: Any

    def request(self) -> dict[str, Any]:
        """The call as the program's side reads it (exports.py)."""
        return {"name": self.entry_point, "args": self.args, "kwargs": self.kwargs}


@dataclass(frozen=True)
class CalledTest:
    """The calls of one test and the required value.

    `relation`: "tolerant" (compare.py), "==", "is" (True, False or None), "true" or "false". `display`: the type of the
    display that the calls stand in, tuple or list; None: the test is of one call's value. `subscripts`: the keys that
    lead to the part of this value that is compared.
    """

    calls: tuple[Call, ...]
    relation: str
    expected: Any = None
    display: type[tuple[Any, ...]] | type[list[Any]] | None = None
    subscripts: tuple[int | str, ...] = ()

    @property
    def by_data(self) -> bool:
        """Whether it is of a `CallCase`, which a method of class Solution can answer."""
        return self.relation == "tolerant"

    def request(self) -> dict[str, Any]:
        """The message that the program's side answers with the value, or with the list of the calls' values."""
        if self.display is None:
            part = {"part": True} if self.subscripts else {}
            return {"op": "run", "method": self.by_data, **part, **self.calls[0].request()}
        return {"op": "run_all", "calls": [call.request() for call in self.calls]}

    def value(self, form: Any) -> Any:
        """The value of an answer's form; raises what `decode` raises, `RemoteValue` for an object of the program."""
        value = decode(form, _refuse_handle, QUICK)
        if self.display is None:
            return value
        if type(value) is not list:
            raise ValueError("not the list of the calls' values")
        return self.display(value)

    def holds(self, value: Any) -> bool:
        """Whether a value (plain data) satisfies the test."""
        if self.by_data:
            return same_value(value, self.expected)
        if self.relation == "==":
            return bool(value == self.expected)
        if self.relation == "is":
            return value is self.expected
        return bool(value) is (self.relation == "true")


def as_calls(
    cases: list[dict[str, Any]], setup: str, entry_points: frozenset[str] = frozenset()
) -> list[CalledTest] | None:
    """The cases as tests of calls, or None when one of them (or the setup) needs code to run.

    A builtin, a library name or a name that the setup imports means the original even if the program redefines it: the
    judge ensures that. Only `entry_points` always mean the program's own functions.
    """
    imported = _imported(setup)
    if imported is None:
        return None
    originals = (_LIBRARY | imported) - entry_points
    tests = []
    for case in cases:
        test = parse_assert(case["source"]) if "source" in case else _from_case(case)
        if test is None or ("source" in case and _named(test) & originals):
            return None
        tests.append(test)
    return tests


def _named(test: CalledTest) -> set[str]:
    return {call.entry_point for call in test.calls}


def _from_case(case: dict[str, Any]) -> CalledTest:
    call = Call(case["entry_point"], case["args"], case["kwargs"])
    return CalledTest((call,), "tolerant", decode(case["expected"]))


@lru_cache(maxsize=256)
def _imported(setup: str) -> frozenset[str] | None:
    """The names that a setup of imports alone binds; None for any other setup."""
    try:
        body = ast.parse(setup).body
    except (SyntaxError, ValueError):
        return None
    names = [
        alias.asname or alias.name.partition(".")[0]
        for statement in body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
    ]
    only_imports = all(isinstance(statement, ast.Import | ast.ImportFrom) for statement in body)
    return frozenset(names) if only_imports and "*" not in names else None


@lru_cache(maxsize=8192)
def parse_assert(source: str) -> CalledTest | None:
    """The calls of a single assert with literal arguments, or None for any other test.

    Results are cached: counterfactual replays send the same tests with every program.
    """
    try:
        module = ast.parse(source)
        body = module.body
        if len(body) != 1 or not isinstance(body[0], ast.Assert):
            return None
        with warnings.catch_warnings(action="ignore"):
            compile(module, "test", "exec")  # refuses more than the parser does: an argument given twice
        return _relation(body[0].test)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError, NotData):
        return None


def _relation(test: ast.expr) -> CalledTest | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _of_one(test.operand, "false")
    if not isinstance(test, ast.Compare):
        return _of_one(test, "true")
    if len(test.ops) != 1:
        return None
    left, right = test.left, test.comparators[0]
    if isinstance(test.ops[0], ast.Is):
        expected = ast.literal_eval(right)
        return _of_one(left, "is", expected) if expected is None or isinstance(expected, bool) else None
    if not isinstance(test.ops[0], ast.Eq):
        return None
    if isinstance(left, ast.Tuple | ast.List) and left.elts:
        return _of_several(left, ast.literal_eval(right))
    if isinstance(left, ast.Call | ast.Subscript) and not isinstance(right, ast.Call):
        return _of_one(left, "==", ast.literal_eval(right))
    return None


def _of_one(node: ast.expr, relation: str, expected: Any = None) -> CalledTest | None:
    subscripts: list[int | str] = []
    while isinstance(node, ast.Subscript):
        key = ast.literal_eval(node.slice)
        if type(key) not in (int, str):
            return None
        subscripts.insert(0, key)
        node = node.value
    call = _call(node)
    return None if call is None else CalledTest((call,), relation, expected, subscripts=tuple(subscripts))


def _of_several(display: ast.Tuple | ast.List, expected: Any) -> CalledTest | None:
    calls = [call for call in map(_call, display.elts) if call is not None]
    if len(calls) < len(display.elts):
        return None
    return CalledTest(tuple(calls), "==", expected, tuple if isinstance(display, ast.Tuple) else list)


def _call(node: ast.expr) -> Call | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    if any(word.arg is None for word in node.keywords):
        return None
    args = encode([ast.literal_eval(argument) for argument in node.args])
    kwargs = encode({str(word.arg): ast.literal_eval(word.value) for word in node.keywords})
    return Call(node.func.id, args, kwargs)


WINDOW_TESTS, WINDOW_BYTES = 32, 1 << 16
"""How many tests and bytes may be in flight: tests are independent, and each wait costs two context switches."""


class NeedsJudge(Exception):
    """An answer that only a judge should read."""


class RemoteValue(Exception):
    """The program returned an object of its own class: its statements about itself prove nothing."""


def _refuse_handle(body: Any) -> Any:
    raise RemoteValue(f"the program returned an object of its class {str(body[2])[:100]}")


def called_run(check: Check, tests: list[CalledTest]) -> Generator[WireResult, None, None]:
    """Results of the tests up to and including the first one that kills the program's process.

    Raises `NeedsJudge` at a test whose answer a judge must read.
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
            yield from session.results(tests)
            return
        failure = check.load_failure(child, loaded, session.timed_out)
        for _ in tests:
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

    def results(self, tests: list[CalledTest]) -> Iterator[WireResult]:
        frames = [frame(test.request()) for test in tests]
        sent = 0
        ahead = 0
        for index, test in enumerate(tests):
            ahead -= len(frames[index - 1]) if index else 0
            part = []
            while sent < len(frames) and sent - index < WINDOW_TESTS:
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
            yield {**_verdict(test, reply), "time": elapsed}


def _verdict(test: CalledTest, reply: Returned | Raised) -> WireResult:
    if isinstance(reply, Raised):
        outcome = outcomes.MEMORY if reply.out_of_memory else outcomes.RUNTIME_ERROR
        return {"outcome": outcome, "detail": reply.line, "error_type": reply.type}
    try:
        return _compared(test, test.value(reply.form))
    except OutOfBounds:
        raise NeedsJudge from None
    except RemoteValue as refusal:
        # Only a judge can ask for an object's truth value or a part of it.
        if test.relation in ("true", "false") or test.subscripts:
            raise NeedsJudge from None
        return {"outcome": outcomes.WRONG_ANSWER, "detail": str(refusal)}
    except UNREADABLE as unreadable:
        if test.subscripts:
            raise NeedsJudge from None
        detail = f"returned a value that can't be read: {type(unreadable).__name__}"
        return {"outcome": outcomes.WRONG_ANSWER, "detail": detail}


def _compared(test: CalledTest, value: Any) -> WireResult:
    try:
        for key in test.subscripts:
            value = value[key]
    except (TypeError, LookupError) as error:  # as a judge reports it
        kind = type(error).__name__
        return {"outcome": outcomes.RUNTIME_ERROR, "detail": f"{kind}: {error}", "error_type": kind}
    if test.holds(value):
        return {"outcome": outcomes.PASSED}
    wanted = "" if test.relation in ("true", "false") else f", expected {shown(test.expected)}"
    return {"outcome": outcomes.WRONG_ANSWER, "detail": f"returned {shown(value)}{wanted}"}
