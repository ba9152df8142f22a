"""Tests that need code to run: a judge process runs them against the program's process and reports to the worker.

Everything read here was written by the judge (judge.py): the program has no descriptor of the judge's channel and
influences only the texts that verdicts quote.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from rewards.sandbox.inside.frames import parse
from rewards.sandbox.inside.replies import GONE, Gone, Raised, read_loaded, read_verdict
from rewards.sandbox.worker import zygote
from rewards.sandbox.worker.execution import Child, Limits, SlotBroken

if TYPE_CHECKING:
    from rewards.sandbox.worker.checking import Check, WireResult

_TOO_LARGE = b'{"outcome": "memory", "detail": "values of the program take more memory than it may use"}'


def judged_run(check: Check, cases: list[dict[str, Any]]) -> Generator[WireResult, None, None]:
    """Results of the cases up to and including the first one that kills the program's process."""
    theirs, ours = socket.socketpair()
    limits = Limits(check.limits.memory_mb, int(check.total) + 2)
    payload = {"mode": "serve", "code": check.job["code"], "files": check.job.get("files")}
    tests = {
        "mode": "judge",
        "setup": check.job.get("setup"),
        "entry_points": check.job.get("entry_points"),
        "cases": cases,
    }
    program = judge = None
    try:
        program = Child(check.programs, payload, limits, check.output_limit, calls=theirs)
        judge = Child(check.judges, tests, limits, check.output_limit, calls=ours, judge=True)
        theirs.close()
        ours.close()
        yield from _results(check, program, judge, len(cases))
    finally:
        theirs.close()
        ours.close()
        for child in (judge, program):
            if child is not None:
                child.end(check.clock)
                child.close()


def _results(check: Check, program: Child, judge: Child, count: int) -> Iterator[WireResult]:
    body = _next(check, program, judge)
    if body is _TOO_LARGE:
        for _ in range(count):
            yield {**read_verdict(parse(body)), "time": 0.0}
        return
    loaded = read_loaded(parse(body)) if body is not None else Gone()
    if loaded is not None:
        failure = check.load_failure(program, loaded if isinstance(loaded, Raised) else None, body is None)
        for _ in range(count):
            yield {**failure, "time": 0.0}
        return
    for _ in range(count):
        start = time.monotonic()
        body = _next(check, program, judge)
        elapsed = time.monotonic() - start
        verdict = read_verdict(parse(body)) if body is not None else {"outcome": GONE}
        if verdict["outcome"] == GONE:
            yield {**check.death(program, body is None), "time": elapsed}
            return
        yield {**verdict, "time": elapsed}
        if judge.report is not None and not judge.verdicts:
            return


def _next(check: Check, program: Child, judge: Child) -> bytes | None:
    """The judge's next message; None after a timeout."""

    def arrived() -> bool:
        return bool(judge.verdicts) or judge.report is not None

    in_time = check.limited(arrived, [program, judge])
    if judge.verdicts:
        return judge.verdicts.pop(0)
    if judge.report is not None and judge.report.killed == zygote.FOR_MEMORY:
        return _TOO_LARGE
    if in_time:
        raise SlotBroken(f"the judge ended without a verdict ({judge.report}): {judge.stderr.ending()[-500:]}")
    return None
