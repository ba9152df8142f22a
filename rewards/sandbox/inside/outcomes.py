"""Outcome classes, their derivation from how a process ended, and a known good program for testing a slot."""

from __future__ import annotations

import re
import signal
from typing import Any

KNOWN_GOOD: dict[str, Any] = {
    "code": "def double(x):\n    return 2 * x\n", "language": "python", "files": {}, "timeout": 2.0,
    "compile_timeout": 0.1, "memory_mb": 256, "output_limit": 1 << 16, "setup": "", "max_timeouts": 1,
    "stop_on_failure": False, "total_timeout": 3.0, "entry_points": [],
    "cases": [{"source": "assert double(2) == 4"}, {"source": "value = double(3)\nassert value == 6"}],
}  # fmt: skip
"""A job with one case that the worker compares and one that a judge runs."""


PASSED = "passed"
WRONG_ANSWER = "wrong_answer"
RUNTIME_ERROR = "runtime_error"
SYNTAX_ERROR = "syntax_error"
TIMEOUT = "timeout"
MEMORY = "memory"
OUTPUT_LIMIT = "output_limit"
UNLIMITED = (PASSED, WRONG_ANSWER, RUNTIME_ERROR)
"""Outcomes of a case that no limit of time, memory or output decided."""
OUTCOMES = (PASSED, WRONG_ANSWER, RUNTIME_ERROR, SYNTAX_ERROR, TIMEOUT, MEMORY, OUTPUT_LIMIT)

_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(:.*)?$")
_SYNTAX = ("SyntaxError", "IndentationError", "TabError")
_OUT_OF_MEMORY = ("MemoryError", "bad_alloc", "out of memory", "Cannot allocate memory")


def classify_end(return_code: int | None, stderr: str) -> tuple[str, str | None, str | None]:
    """Outcome class, exception type (or signal name) and last traceback line of a program that has ended.

    `return_code`: as SandboxFusion reports it: None after a timeout, negative for a signal. `stderr`: its tail.
    """
    if return_code is None:
        return TIMEOUT, None, None
    if return_code == 0:
        return PASSED, None, None
    error_type, error_line = last_exception(stderr)
    if return_code < 0:
        if -return_code == signal.SIGXCPU:
            return TIMEOUT, None, None
        error_type = _signal_name(-return_code)
        # An uncaught bad_alloc ends in abort().
        memory = -return_code == signal.SIGABRT and "bad_alloc" in stderr
        return (MEMORY if memory else RUNTIME_ERROR), error_type, error_line or f"killed by {error_type}"
    if error_line and any(mark in error_line for mark in _OUT_OF_MEMORY):
        return MEMORY, error_type or "MemoryError", error_line
    # A file that does not compile has no traceback above its error; code that compiles other code at run time has one.
    if error_type in _SYNTAX and "Traceback (most recent call last)" not in stderr:
        return SYNTAX_ERROR, error_type, error_line
    return RUNTIME_ERROR, error_type, error_line


def last_exception(stderr: str) -> tuple[str | None, str | None]:
    """Exception type and last traceback line from a program's standard error, None where there is none."""
    lines = [line for line in stderr.rstrip().split("\n")[-200:] if line.strip()]
    if not lines:
        return None, None
    for line in reversed(lines):
        if line.startswith((" ", "\t")):
            break
        match = _EXCEPTION.match(line)
        name = match.group(1).rpartition(".")[2] if match else ""
        if name[:1].isupper():
            return name, line[:2000]
    return None, lines[-1][:2000]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
