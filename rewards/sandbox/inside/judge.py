"""The judge: runs the tests of a check in a separate process and asks the program's process for values.

The judge is forked from a server that never held a program; the program's process is forked from a server that never
held a test. They exchange only plain data (codec.py), so a program can lie about a value only by computing the right
one: expected values, test source, verdicts and the checker's frames are in an address space that it cannot reach.
`free_names` finds the names that a test expects from the program, the builtins or a library.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import socket
import symtable
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from rewards.sandbox.inside.codec import decode, shown
from rewards.sandbox.inside.compare import same_value
from rewards.sandbox.inside.frames import send_frame
from rewards.sandbox.inside.proxies import Stub, Unverifiable, data_of
from rewards.sandbox.inside.remote import MAX_DETAIL, ProgramGone, RemoteProgram

LIBRARIES = {
    "np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "sp": "scipy", "nx": "networkx", "sns": "seaborn",
    "tf": "tensorflow", "sy": "sympy",
    **{name: name for name in (
        "numpy", "pandas", "matplotlib", "scipy", "networkx", "seaborn", "tensorflow", "torch", "sklearn", "sympy",
        "requests", "bs4", "nltk", "cv2", "PIL", "jax", "jnp",
    )},
}  # fmt: skip
"""Names of third-party libraries and the module that each one means."""


@lru_cache(maxsize=8192)
def free_names(test: str) -> frozenset[str]:
    """The names that a test reads but neither defines nor imports. Raises SyntaxError for invalid Python."""
    table = symtable.symtable(test, "test", "exec")
    bound = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    read: set[str] = set()
    tables = [table]
    while tables:
        current = tables.pop()
        tables += current.get_children()
        for symbol in current.get_symbols():
            is_global = symbol.is_global() or current is table
            if is_global and symbol.is_assigned():
                bound.add(symbol.get_name())
            if is_global and symbol.is_referenced():
                read.add(symbol.get_name())
    return frozenset(read - bound)


_BUILTINS = frozenset(dir(builtins))


class CaseJudge:
    """Judges the cases of one payload in order and reports every verdict immediately."""

    def __init__(self, payload: dict[str, Any], verdicts: socket.socket, calls: socket.socket) -> None:
        self.program = RemoteProgram(calls)
        self.verdicts = verdicts
        self.cases: list[dict[str, Any]] = payload["cases"]
        self.setup: str = payload.get("setup") or ""
        self.entry_points = frozenset(payload.get("entry_points") or ())
        self.namespace: dict[str, Any] = {"__name__": "tests", "__builtins__": builtins}

    def run(self) -> None:
        """Wait for the program, bind the names that the tests need, judge every case."""
        try:
            error = self.program.loaded()
        except ProgramGone as gone:
            self._send({"loaded": False, "error": {"gone": True, "detail": str(gone)}})
            return
        if error is not None:
            self._send({"loaded": False, "error": {"type": error.type, "line": error.line, "syntax": error.syntax}})
            return
        self._send({"loaded": True, "error": None})
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
        used = frozenset[str]().union(*map(free_names, sources))
        # An entry point is bound even if a test rebinds its name later.
        for name in sorted((used - _BUILTINS) | self.entry_points):
            library = name if name in sys.stdlib_module_names else LIBRARIES.get(name)
            # A test that uses math.isclose without importing math means the library, never the program's own math. A
            # name that neither has stays unbound: the test that needs it gets Python's NameError.
            with contextlib.suppress(KeyError, ImportError):
                if library and name not in self.entry_points:
                    self.namespace[name] = importlib.import_module(library)
                else:
                    self.namespace[name] = self.program.ask("name", name=name)
        if self.setup:
            exec(compile(self.setup, "setup", "exec"), self.namespace)  # noqa: S102 - the sandboxed judge

    def _guarded(self, step: Callable[..., None], *arguments: Any) -> dict[str, Any] | None:
        """Run one step of the tests; None on success, else the verdict for its exception."""
        failure = None
        try:
            step(*arguments)
        except (ProgramGone, Unverifiable):
            pass
        except BaseException as error:
            failure = self._failure(error)
        # Read from the program, not from the exception: a test may have caught it.
        fatal, self.program.fatal = self.program.fatal, None
        if isinstance(fatal, ProgramGone):
            self.program.fatal = fatal
            return {"outcome": "gone", "detail": str(fatal)}
        if fatal is not None:
            return {"outcome": "wrong_answer", "detail": str(fatal)}
        return failure

    def _failure(self, error: BaseException) -> dict[str, Any]:
        raised = getattr(error, "program_error", None)
        if raised is not None:
            outcome = "memory" if raised.out_of_memory else "runtime_error"
            return {"outcome": outcome, "detail": raised.line, "error_type": raised.type}
        if isinstance(error, AssertionError):
            return {"outcome": "wrong_answer", "detail": _text(error)[:500] or "AssertionError"}
        kind = type(error).__name__[:200]
        # The judge has the same memory limit as the program: values too large for it came from the program.
        outcome = "memory" if isinstance(error, MemoryError) else "runtime_error"
        return {"outcome": outcome, "detail": f"{kind}: {_text(error)}"[:MAX_DETAIL], "error_type": kind}

    def _assert_case(self, case: dict[str, Any]) -> None:
        exec(compile(case["source"], "test", "exec"), self.namespace)  # noqa: S102 - the sandboxed judge

    def _call_case(self, case: dict[str, Any]) -> None:
        # By value: an object of a subclass of a builtin type counts as its builtin value.
        call = {"name": case["entry_point"], "args": case["args"], "kwargs": case["kwargs"]}
        actual = self.program.ask("run", **call, method=True)
        if issubclass(type(actual), Stub):
            actual = data_of(actual)
        expected = decode(case["expected"])
        if not same_value(actual, expected):
            raise AssertionError(f"returned {shown(actual)}, expected {shown(expected)}")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return ""
