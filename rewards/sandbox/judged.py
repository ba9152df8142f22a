"""Tests with code of their own: a judge process runs them against the program's process, and the worker listens.

What is read here was written by the judge (judge.py): the program has no descriptor of its channel.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from rewards.sandbox.execution import Child, Limits, SlotBroken

if TYPE_CHECKING:
    from rewards.sandbox.checking import Check, Result


def judged_run(check: Check, cases: list[dict[str, Any]]) -> Generator[Result, None, None]:
    """Results of the cases up to the first that ends the program's process, that one included."""
    theirs, ours = socket.socketpair()
    limits = Limits(check.limits.memory_mb, int(check.seconds * (len(cases) + 1)) + 2)
    payload = {"mode": "serve", "code": check.job["code"], "files": check.job.get("files")}
    tests = {"mode": "judge", "setup": check.job.get("setup"), "cases": cases}
    program = judge = None
    try:
        program = Child(check.programs, payload, limits, check.output_limit, calls=theirs)
        judge = Child(check.judges, tests, limits, check.output_limit, calls=ours)
        theirs.close()
        ours.close()
        yield from _verdicts(check, program, judge, len(cases))
    finally:
        theirs.close()
        ours.close()
        for child in (judge, program):
            if child is not None:
                child.end(check.clock)
                child.close()


def _verdicts(check: Check, program: Child, judge: Child, count: int) -> Iterator[Result]:
    loaded = _next(check, program, judge)
    if loaded is None or not loaded.get("loaded"):
        error = loaded["error"] if loaded else None
        failure = check.load_failure(program, None if error and "gone" in error else error, loaded is None)
        for _ in range(count):
            yield {**failure, "time": 0.0}
        return
    for _ in range(count):
        start = time.monotonic()
        verdict = _next(check, program, judge)
        elapsed = time.monotonic() - start
        if verdict is None or verdict["outcome"] == "gone":
            yield {**check.death(program, verdict is None), "time": elapsed}
            return
        yield {**verdict, "time": elapsed}


def _next(check: Check, program: Child, judge: Child) -> dict[str, Any] | None:
    """The judge's next message; None when the time for it is over."""

    def arrived() -> bool:
        return bool(judge.messages) or judge.report is not None

    in_time = check.clock.limited(arrived, [program, judge], check.seconds)
    message = judge.take()
    if message is None and in_time:
        raise SlotBroken(f"the judge ended without a verdict: {judge.stderr.ending()[-500:]}")
    return message
