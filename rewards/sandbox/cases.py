"""The sandbox's inputs and results: plain dataclasses, importing only the standard library."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rewards.sandbox.inside.codec import encode
from rewards.sandbox.inside.outcomes import PASSED

# Limits of a request that states none, the same for the client, the server and the judge's settings.
TIMEOUT_SECONDS = 10.0
"""Seconds that one program, one test or one compilation may run."""
MEMORY_MB = 1024
"""MiB of all processes of one program together."""
OUTPUT_LIMIT = 1 << 20
"""Bytes per output stream."""
MAX_TIMEOUTS = 2
"""Tests of one program that may time out before the rest count as timed out."""


class InfrastructureError(Exception):
    """The sandbox could not run a program: no server answered, or the server failed. Never a reason for a score."""


@lru_cache(maxsize=4096)
def require_python(source: str) -> None:
    """Raise `ValueError` for a test that does not compile: an error in the data, found before anything runs."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"a test is not valid Python: {error}: {source[:200]!r}") from None


@dataclass(frozen=True)
class AssertCase:
    """Statements that raise unless the program is correct, as in MBPP: `assert add(1, 2) == 3`.

    Raises `ValueError` if `source` is not valid Python: that is an error in the data, not in the program.
    """

    source: str

    def __post_init__(self) -> None:
        require_python(self.source)

    def to_wire(self) -> dict[str, Any]:
        """The JSON form for the server."""
        return {"source": self.source}


@dataclass(frozen=True)
class CallCase:
    """Call `entry_point(*args, **kwargs)` and compare the returned value with `expected` (rules: compare.py).

    A program without this function may have a method of this name in class `Solution`; its object is new each time.

    Values are plain data: numbers, strings, bytes, None, lists, tuples, sets, dicts and the like (codec.py).
    """

    entry_point: str
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    expected: Any = None

    def to_wire(self) -> dict[str, Any]:
        """The JSON form for the server; raises `NotData` (a TypeError) for values that are not plain data."""
        return {
            "entry_point": self.entry_point,
            "args": encode(list(self.args)),
            "kwargs": encode(self.kwargs),
            "expected": encode(self.expected),
        }


@dataclass(frozen=True)
class StdioCase:
    """Run the program with `stdin` as its input and compare its output with `expected` (rules: compare.py).

    `layout`: leading and inner blanks must match, for tasks that are about layout.
    """

    stdin: str
    expected: str
    layout: bool = False

    def to_wire(self) -> dict[str, Any]:
        """The JSON form for the server."""
        wire: dict[str, Any] = {"stdin": self.stdin, "expected": self.expected}
        return {**wire, "layout": True} if self.layout else wire


Case = AssertCase | CallCase | StdioCase


@dataclass(frozen=True)
class Program:
    """A model's program. `files`: additional files in its folder, relative path to base64 content."""

    code: str
    language: str = "python"
    files: dict[str, str | None] | None = None


@dataclass(frozen=True)
class RunResult:
    """The result of one run.

    `outcome`: one of outcomes.OUTCOMES; `return_code`: None after a timeout, negative for a signal;
    `execution_time`: wall seconds; `busy_seconds`: wall seconds of the worker, including start and end of the program;
    `error_type`, `error_line`: exception (or signal) and last traceback line, if any.
    """

    outcome: str
    stdout: str = ""
    stderr: str = ""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    return_code: int | None = None
    execution_time: float = 0.0
    busy_seconds: float = 0.0
    error_type: str | None = None
    error_line: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the program ran to its end with exit code 0."""
        return self.outcome == PASSED


@dataclass(frozen=True)
class CaseResult:
    """The result of one case.

    `detail`: the reason of a failure, in one line. `execution_time`: wall seconds; `busy_seconds`: wall seconds of the
    worker, including the start of the process in its first case.
    """

    outcome: str
    detail: str | None = None
    error_type: str | None = None
    execution_time: float = 0.0
    busy_seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the case passed."""
        return self.outcome == PASSED


@dataclass(frozen=True)
class CheckResult:
    """The results of all cases of a check, in order.

    `executed`: the statements that some case executed, counted from 0 in the order of the text; None if not known.
    """

    cases: list[CaseResult]
    executed: frozenset[int] | None = None

    @property
    def passed(self) -> int:
        """How many cases passed."""
        return sum(case.passed for case in self.cases)

    @property
    def fraction(self) -> float:
        """The fraction of cases that passed, 0.0 to 1.0; 0.0 without cases."""
        return self.passed / len(self.cases) if self.cases else 0.0

    @property
    def all_passed(self) -> bool:
        """Whether there are cases and all passed."""
        return bool(self.cases) and self.passed == len(self.cases)

    @property
    def execution_time(self) -> float:
        """Total wall seconds of all cases."""
        return sum(case.execution_time for case in self.cases)

    @property
    def busy_seconds(self) -> float:
        """Total seconds that a worker was busy with the cases."""
        return sum(case.busy_seconds for case in self.cases)

    @property
    def outcome(self) -> str:
        """The outcome of the first case that failed, or "passed"."""
        return next((case.outcome for case in self.cases if not case.passed), PASSED)


def whole_check(timeout: float, cases: int, total: float | None = None) -> float:
    """Seconds that all cases of a check may take together: `total`, or by default the larger of four times `timeout`
    and half of it per case."""
    return total or timeout * max(4.0, cases / 2)
