"""Runs the tests of a check in a process of their own and asks the program's process for values.

The judge is forked from a server that never held a program; the program's process is forked from a server that never
held a test. Between them goes plain data (codec.py), so a program can lie about a value only by computing the right
one: expected values, test source, verdicts and the checker's frames are in an address space that it has no way into.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import socket
import sys
from collections.abc import Callable
from typing import Any

from rewards.sandbox.codec import UNREADABLE, NotData, decode, encode, receive_frame, send_frame
from rewards.sandbox.compare import same_value

MAX_ITEMS = 1_000_000


class ProgramError(Exception):
    """An exception of the program whose type is not a builtin one."""


class ProgramGone(BaseException):
    """The program's process ended in the middle of a call. Not an Exception, so that no test swallows it."""


class Unverifiable(BaseException):
    """The test asked an object of the program's own class for a decision; its answer would prove nothing."""


class Program:
    """The judge's end of the call channel."""

    def __init__(self, calls: socket.socket) -> None:
        self._calls = calls

    def loaded(self) -> dict[str, Any] | None:
        """Wait until the program is loaded; returns the error that it ended with, or None."""
        return self._exchange(None).get("x")

    def _exchange(self, request: dict[str, Any] | None) -> dict[str, Any]:
        try:
            if request is not None:
                send_frame(self._calls, request)
            reply = receive_frame(self._calls)
        except (OSError, EOFError):
            raise ProgramGone from None
        except ValueError as error:
            raise ProgramGone(str(error)) from None
        if not isinstance(reply, dict):
            raise ProgramGone("the program sent no reply of ours")
        return reply

    def ask(self, request: dict[str, Any]) -> Any:
        """Send a request and return its value; raises what the program raised."""
        reply = self._exchange(request)
        if "x" in reply:
            raise _as_exception(reply["x"])
        return self._decoded(reply.get("v"))

    def call(self, handle: list[Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call an object of the program; lists, dicts and sets that it changed in place are changed here as well."""
        encoded = [encode(argument, _handle_of) for argument in arguments]
        reply = self._exchange({"op": "call", "on": handle, "args": encoded, "kwargs": encode(keywords, _handle_of)})
        if "x" in reply:
            raise _as_exception(reply["x"])
        if "args" in reply:
            for argument, after in zip(arguments, self._decoded(reply["args"]), strict=False):
                _overwrite(argument, after)
        return self._decoded(reply.get("v"))

    def _decoded(self, form: Any) -> Any:
        try:
            return decode(form, lambda body: RemoteObject(self, [int(body[0]), str(body[1])]))
        except UNREADABLE as error:
            raise ProgramGone(f"the program sent a value that can't be read: {error}") from None


def _overwrite(argument: Any, after: Any) -> None:
    if type(argument) is not type(after):
        return
    if isinstance(argument, (list, bytearray)):
        argument[:] = after
    elif isinstance(argument, (dict, set)):
        argument.clear()
        argument.update(after)


def _handle_of(value: Any) -> Any:
    if type(value) is RemoteObject:
        return {"o": object.__getattribute__(value, "_handle")}
    raise NotData(f"a {type(value).__name__} can't be handed to the program")


def _as_exception(error: Any) -> Exception:
    name, text = str(error.get("type")), str(error.get("text"))
    kind = getattr(builtins, name, None)
    # A program's SystemExit or KeyboardInterrupt must not end the judge: only Exceptions are raised as themselves.
    if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, StopIteration):
        kind = ProgramError
    try:
        raised = kind(text)
    except TypeError:
        raised = ProgramError(text)
    raised.program_error = {"type": name, "line": str(error.get("line"))}  # type: ignore[attr-defined]
    return raised


class RemoteObject:
    """An object that lives in the program's process. It can be called and read; it can't be compared or be true."""

    __slots__ = ("_handle", "_program")

    def __init__(self, program: Program, handle: list[Any]) -> None:
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_handle", handle)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._program.call(self._handle, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._program.ask({"op": "attribute", "on": self._handle, "name": name})

    def __getitem__(self, key: Any) -> Any:
        return self._program.ask({"op": "item", "on": self._handle, "key": encode(key, _handle_of)})

    def __iter__(self) -> Any:
        iterator = self._program.ask({"op": "iterate", "on": self._handle})
        count = 0
        while items := self._program.ask({"op": "next", "on": object.__getattribute__(iterator, "_handle")}):
            yield from items
            count += len(items)
            if count > MAX_ITEMS:
                raise Unverifiable(f"an iterator gave more than {MAX_ITEMS} items")

    def __len__(self) -> int:
        return int(self._program.ask({"op": "len", "on": self._handle}))

    def __str__(self) -> str:
        return str(self._program.ask({"op": "str", "on": self._handle}))

    def __repr__(self) -> str:
        return str(self._program.ask({"op": "repr", "on": self._handle}))

    def _undecidable(self, *_: Any) -> Any:
        raise Unverifiable(f"the test compares an object of the program's class {self._handle[1]}")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = _undecidable
    __hash__ = None  # type: ignore[assignment]


def needed_names(sources: list[str]) -> list[str]:
    """Names that the tests use and neither define, import nor find in builtins: what the program must supply."""
    used: set[str] = set()
    defined: set[str] = set(dir(builtins))
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            defined.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            defined.add(node.name)
    return sorted(used - defined)


class Judge:
    """Judges the cases of one payload in order and reports each verdict at once."""

    def __init__(self, payload: dict[str, Any], verdicts: socket.socket, calls: socket.socket) -> None:
        self.program = Program(calls)
        self.verdicts = verdicts
        self.cases: list[dict[str, Any]] = payload["cases"]
        self.setup: str = payload.get("setup") or ""
        self.namespace: dict[str, Any] = {"__name__": "tests", "__builtins__": builtins}

    def run(self) -> None:
        """Wait for the program, bind the names that the tests need, judge every case."""
        try:
            error = self.program.loaded()
        except ProgramGone as gone:
            error = {"gone": True, "detail": str(gone)}
        self._send({"loaded": error is None, "error": error})
        if error is not None:
            return
        broken = self._guarded(self._bind)
        for case in self.cases:
            verdict = broken or self._guarded(self._call_case if "entry_point" in case else self._assert_case, case)
            self._send(verdict or {"outcome": "passed"})
            if verdict and verdict["outcome"] == "gone":
                return

    def _send(self, message: dict[str, Any]) -> None:
        send_frame(self.verdicts, message)

    def _bind(self) -> None:
        sources = [self.setup, *(case["source"] for case in self.cases if "source" in case)]
        for name in needed_names(sources):
            # A test that says math.isclose without importing math means the library's, never one of the program's
            # making.
            if name in sys.stdlib_module_names:
                self.namespace[name] = importlib.import_module(name)
                continue
            # What the program does not define stays unbound: the test that needs it gets Python's NameError.
            with contextlib.suppress(KeyError):
                self.namespace[name] = self.program.ask({"op": "name", "name": name})
        if self.setup:
            exec(compile(self.setup, "setup", "exec"), self.namespace)  # noqa: S102 - the sandboxed judge

    def _guarded(self, step: Callable[..., None], *arguments: Any) -> dict[str, Any] | None:
        """Run one step of the tests; None when it went through, else the verdict that its exception means."""
        try:
            step(*arguments)
        except ProgramGone as gone:
            return {"outcome": "gone", "detail": str(gone)}
        except Unverifiable as doubt:
            return {"outcome": "wrong_answer", "detail": str(doubt)}
        except BaseException as error:
            return self._failure(error)
        return None

    def _failure(self, error: BaseException) -> dict[str, Any]:
        raised = getattr(error, "program_error", None)
        if isinstance(error, AssertionError) and raised is None:
            return {"outcome": "wrong_answer", "detail": str(error)[:500] or "AssertionError"}
        if raised is None:
            raised = {"type": type(error).__name__, "line": f"{type(error).__name__}: {error}"[:2000]}
        outcome = "memory" if raised["type"] == "MemoryError" else "runtime_error"
        return {"outcome": outcome, "detail": raised["line"], "error_type": raised["type"]}

    def _assert_case(self, case: dict[str, Any]) -> None:
        exec(compile(case["source"], "test", "exec"), self.namespace)  # noqa: S102 - the sandboxed judge

    def _call_case(self, case: dict[str, Any]) -> None:
        target = self.program.ask({"op": "name", "name": case["entry_point"]})
        if type(target) is not RemoteObject:
            raise TypeError(f"{case['entry_point']} is not callable")
        actual = target(*decode(case["args"]), **decode(case["kwargs"]))
        if type(actual) is RemoteObject:
            raise Unverifiable(f"the program returned an object of its class {actual._handle[1]}")
        expected = decode(case["expected"])
        if not same_value(actual, expected):
            raise AssertionError(f"returned {actual!r:.200}, expected {expected!r:.200}")
