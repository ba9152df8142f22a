"""Plain harness to compare the sandbox with: the verdict of a researcher's own `exec` on a program.

It has no isolation, so it runs trusted programs only: the reference solutions of known data sets and their mutants.
Every program gets a Python process in an empty temporary folder, with limits on processor time and memory, as the
leader of a session that is killed afterwards. A program whose tests call it is loaded as a module other than
`__main__`; each test then runs as `exec(setup + test, copy of its names)`. A program that is judged by its output runs
as `__main__`, and the lines are compared without trailing blanks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import types
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

MEMORY_MB = 1024
_FILE_BYTES = 32 << 20
_START_SECONDS = 1.0  # of processor time for the interpreter, which the sandbox does not charge either
_PATIENCE = 4.0
"""A program that waits for a CPU gets more wall time, up to this many times its limit, as in the sandbox."""

PASSED = "passed"
TIMEOUT = "timeout"
OTHER_OUTPUT = "other output"
_ENDED = "the process ended"
PlainVerdict = str | None
"""PASSED, TIMEOUT or the error of one test; None for a test that was not run because an earlier one timed out."""


async def judge_tests(program: str, setup: str, tests: Sequence[str], seconds: float) -> list[PlainVerdict]:
    """The verdict of each test. If the process exits during a test, a new one runs the remaining tests."""
    verdicts: list[PlainVerdict] = []
    while len(verdicts) < len(tests):
        verdicts += await _one_process(program, setup, tests[len(verdicts) :], seconds)
        if TIMEOUT in verdicts:
            verdicts += [None] * (len(tests) - len(verdicts))
    return verdicts


async def _one_process(program: str, setup: str, tests: Sequence[str], seconds: float) -> list[PlainVerdict]:
    job = {"program": program, "setup": setup, "tests": list(tests)}
    limit = seconds * (len(tests) + 1)
    async with _python([__file__], json.dumps(job).encode(), asyncio.subprocess.PIPE, limit) as process:
        assert process.stdout is not None
        verdicts: list[PlainVerdict] = []
        for index in range(-1, len(tests)):
            allowed = _PATIENCE * (seconds + (_START_SECONDS if index < 0 else 0))
            try:
                line = await asyncio.wait_for(process.stdout.readline(), allowed)
                verdict = json.loads(line) if line.endswith(b"\n") else await _end(process)
            except TimeoutError:
                verdict = TIMEOUT
            if index < 0 and verdict != PASSED:  # A program that does not load in time fails all its tests.
                return [verdict] * len(tests)
            if index >= 0:
                verdicts.append(verdict)
            if verdict in (_ENDED, TIMEOUT):
                break
    return verdicts


async def _end(process: asyncio.subprocess.Process) -> str:
    """Why a process ended that printed nothing more: TIMEOUT if it used up its processor time."""
    return TIMEOUT if await process.wait() == -signal.SIGXCPU else _ENDED


async def judge_printed(program: str, cases: Sequence[tuple[str, str]], seconds: float) -> list[PlainVerdict]:
    """The verdict of each pair of input and expected output, each in a separate process."""
    verdicts: list[PlainVerdict] = []
    for given, expected in cases:
        if TIMEOUT in verdicts:
            verdicts.append(None)
            continue
        error, text = await printed(program, given, seconds)
        verdicts.append(error or (PASSED if _lines(text) == _lines(expected) else OTHER_OUTPUT))
    return verdicts


async def printed(program: str, given: str, seconds: float) -> tuple[str | None, str]:
    """The error, if any, and the output of a program that runs as `__main__` with this input."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        path = Path(folder) / "main.py"
        path.write_bytes(program.encode())
        async with _python([str(path)], given.encode(), output, seconds) as process:
            try:
                code = await asyncio.wait_for(process.wait(), _PATIENCE * (seconds + _START_SECONDS))
            except TimeoutError:
                return TIMEOUT, ""
        if code == -signal.SIGXCPU:
            return TIMEOUT, ""
        output.seek(0)
        return f"exit code {code}" if code else None, output.read().decode(errors="replace")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


@contextlib.asynccontextmanager
async def _python(
    arguments: Sequence[str], given: bytes, output: int | BinaryIO, seconds: float
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python process with this input, in an empty folder and with limits; its session is killed after the block."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as stdin:
        stdin.write(given)
        stdin.seek(0)
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-I", *arguments],
            stdin=stdin,
            stdout=output,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(ProcessLookupError):
                _limit(process.pid, seconds)
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def _limit(pid: int, seconds: float) -> None:
    limits = {resource.RLIMIT_AS: MEMORY_MB << 20, resource.RLIMIT_FSIZE: _FILE_BYTES}
    for what, most in limits.items():
        resource.prlimit(pid, what, (most, most))
    processor = int(seconds + _START_SECONDS) + 1
    resource.prlimit(pid, resource.RLIMIT_CPU, (processor, processor + 1))  # SIGXCPU, then SIGKILL


def main() -> None:
    """The child process: read a job from standard input; write PASSED or an error, for loading and for each test."""
    job = json.load(sys.stdin)
    channel = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)

    def report(verdict: str) -> None:
        channel.write(json.dumps(verdict) + "\n")
        channel.flush()

    module = types.ModuleType("program")
    sys.modules["program"] = module
    loaded = _outcome(job["program"], module.__dict__, ended_by=SystemExit)
    report(loaded)
    for test in job["tests"] if loaded == PASSED else ():
        report(_outcome(f"{job['setup']}\n{test}", dict(module.__dict__)))


def _outcome(source: str, namespace: dict[str, Any], ended_by: tuple[()] | type[BaseException] = ()) -> str:
    """PASSED, or the exception that a source raised; `ended_by`: exceptions that count as a normal end."""
    try:
        exec(compile(source, "main.py", "exec"), namespace)  # noqa: S102 - trusted programs, see above
    except ended_by:
        return PASSED
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:300]
    return PASSED


if __name__ == "__main__":
    main()
