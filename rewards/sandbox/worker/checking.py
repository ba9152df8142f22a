"""The worker's side of a check: runs the cases of one program and yields a result for each.

Cases on printed output (`PrintedRun`) and tests that are a single call (direct_calls.py) are compared in this process,
which never runs a program's code. Printed cases share one program process while it behaves. Other tests run in a judge
process (`judged_run`), which alone writes what is read of it here: the program has no descriptor of its channel and
influences only the texts that verdicts quote.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Generator, Iterator
from typing import Any

from rewards.sandbox.inside import outcomes, program
from rewards.sandbox.inside.codec import shown
from rewards.sandbox.inside.compare import same_output
from rewards.sandbox.inside.frames import parse
from rewards.sandbox.inside.replies import GONE, Gone, Raised, read_loaded, read_verdict
from rewards.sandbox.worker import zygote
from rewards.sandbox.worker.check import Check, WireResult
from rewards.sandbox.worker.direct_calls import NeedsJudge, as_calls, called_run
from rewards.sandbox.worker.execution import Child, Limits, WorkerUnusable
from rewards.sandbox.worker.streams import memory_file, rewrite

_TOO_LARGE = b'{"outcome": "memory", "detail": "values of the program take more memory than it may use"}'


def case_results(check: Check) -> Iterator[WireResult]:
    """Yield one result per case, in order, each as soon as it is known.

    With coverage each has, as `executed`, the statements that no earlier case executed.
    """
    if check.executed is None:
        yield from _results(check)
        return
    try:
        for result in _results(check):
            new = check.executed.new()
            yield result if new is None else {**result, "executed": new}
    finally:
        check.executed.close()


def _results(check: Check) -> Iterator[WireResult]:
    cases = check.job["cases"]
    start = 0
    while start < len(cases):
        printed = "stdin" in cases[start]
        end = start
        while end < len(cases) and ("stdin" in cases[end]) == printed:
            end += 1
        yield from _printed(check, cases[start:end]) if printed else _judged(check, cases[start:end])
        start = end


def _printed(check: Check, cases: list[dict[str, Any]]) -> Iterator[WireResult]:
    reuse = len(cases) > 1
    run: PrintedRun | None = None
    try:
        for case in cases:
            skipped = check.skipped()
            if skipped:
                yield skipped
                continue
            if run is not None and run.alive:
                result = run.again(case)
                # Only a fresh process may fail a case: state left by an earlier run must not.
                if result["outcome"] not in (outcomes.PASSED, outcomes.TIMEOUT):
                    run.close()
                    run = PrintedRun(check, case, reuse)
                    failed_again = run.result["outcome"] != outcomes.PASSED
                    reuse = reuse and failed_again
                    result = run.result
            else:
                if run is not None:
                    run.close()
                run = PrintedRun(check, case, reuse)
                result = run.result
            yield check.noted(result)
    finally:
        if run is not None:
            run.close()


def _judged(check: Check, cases: list[dict[str, Any]]) -> Iterator[WireResult]:
    # A process of the program runs the cases from `first` on; those before `done` have their results.
    first = done = 0
    calls = as_calls(cases, check.job.get("setup") or "", frozenset(check.job.get("entry_points") or ()))
    while done < len(cases):
        skipped = check.skipped()
        if skipped:
            yield skipped
            done += 1
            continue
        run = called_run(check, calls[first:]) if calls else judged_run(check, cases[first:])
        at = first
        try:
            with contextlib.closing(run):
                for result in run:
                    at += 1
                    if at <= done:
                        continue  # known: these cases run again only for the state that they leave
                    done += 1
                    yield check.noted(result)
                    if check.skipped():
                        break
            first = at
        except NeedsJudge:
            # Judges read the answers from this case on.
            calls = None


class PrintedRun:
    """A process that runs the program for one input, and for further inputs while it stays well-behaved."""

    def __init__(self, check: Check, case: dict[str, Any], reuse: bool) -> None:
        self.check = check
        self.input = memory_file(case["stdin"])
        # One process may handle all inputs: its limit is the CPU time of all of them.
        limits = Limits(check.limits.memory_mb, int(check.total if reuse else check.seconds) + 2)
        payload = {"mode": "script", "code": check.job["code"], "files": check.job.get("files"), "reuse": reuse}
        self.child = check.child(payload, limits, stdin=self.input)
        self.alive = True
        try:
            self.result = self._finish(case)
        except BaseException:
            self.close()
            raise

    def again(self, case: dict[str, Any]) -> WireResult:
        """Run the program once more in the same process."""
        rewrite(self.input, case["stdin"])
        self.child.stdout.restart()
        self.child.stderr.restart()
        try:
            self.child.control.send(program.NEXT)
        except OSError:
            self.alive = False
        return self._finish(case)

    def _finish(self, case: dict[str, Any]) -> WireResult:
        child, check = self.child, self.check
        start = time.monotonic()

        def over() -> bool:
            return child.runs_done > 0 or child.report is not None

        in_time = check.limited(over, [child])
        elapsed = time.monotonic() - start
        if child.runs_done and child.report is None:
            child.runs_done -= 1
            child.drain()
            self.alive = not child.over_limit
            code: int | None = 0
        else:
            self.alive = False
            child.end(check.clock)
            code = _return_code(child, in_time)
        return {**self._compared(case, code), "time": elapsed}

    def _compared(self, case: dict[str, Any], code: int | None) -> WireResult:
        child = self.child
        if child.over_limit:
            return {"outcome": outcomes.OUTPUT_LIMIT, "detail": f"more than {child.stdout.limit} bytes of output"}
        if child.report is not None and child.report.killed == zygote.FOR_MEMORY:
            return {"outcome": outcomes.MEMORY, "detail": "memory limit"}
        outcome, error_type, line = outcomes.classify_end(code, child.stderr.ending())
        if outcome != outcomes.PASSED:
            lost = child.report is not None and child.report.lost
            return {"outcome": outcome, "detail": line or f"exit code {code}", "error_type": error_type, "lost": lost}
        text = child.stdout.text()
        if same_output(text, case["expected"], layout=case.get("layout", False)):
            return {"outcome": outcomes.PASSED}
        return {
            "outcome": outcomes.WRONG_ANSWER,
            "detail": f"printed {shown(text)}, expected {shown(case['expected'])}",
        }

    def close(self) -> None:
        """Kill the process and release its descriptors."""
        if self.child.report is None:
            self.child.end(self.check.clock)
        self.child.close()
        os.close(self.input)


def _return_code(child: Child, in_time: bool) -> int | None:
    assert child.report is not None
    if not in_time:
        return None
    return child.report.code


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
        program = check.child(payload, limits, calls=theirs)
        judge = Child(check.judges, tests, limits, check.output_limit, calls=ours, judge=True)
        theirs.close()
        ours.close()
        yield from _judge_results(check, program, judge, len(cases))
    finally:
        theirs.close()
        ours.close()
        for child in (judge, program):
            if child is not None:
                child.end(check.clock)
                child.close()


def _judge_results(check: Check, program: Child, judge: Child, count: int) -> Iterator[WireResult]:
    body = _next_message(check, program, judge)
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
        body = _next_message(check, program, judge)
        elapsed = time.monotonic() - start
        verdict = read_verdict(parse(body)) if body is not None else {"outcome": GONE}
        if verdict["outcome"] == GONE:
            yield {**check.death(program, body is None), "time": elapsed}
            return
        yield {**verdict, "time": elapsed}
        if judge.report is not None and not judge.verdicts:
            return


def _next_message(check: Check, program: Child, judge: Child) -> bytes | None:
    """The judge's next message; None after a timeout."""

    def arrived() -> bool:
        return bool(judge.verdicts) or judge.report is not None

    in_time = check.limited(arrived, [program, judge])
    if judge.verdicts:
        return judge.verdicts.pop(0)
    if judge.report is not None and judge.report.killed == zygote.FOR_MEMORY:
        return _TOO_LARGE
    if in_time:
        raise WorkerUnusable(f"the judge ended without a verdict ({judge.report}): {judge.stderr.ending()[-500:]}")
    return None
