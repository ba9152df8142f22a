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
from collections.abc import Callable, Generator, Iterator
from typing import Any

from rewards.sandbox.cases import whole_check
from rewards.sandbox.inside import outcomes, program
from rewards.sandbox.inside.codec import shown
from rewards.sandbox.inside.compare import same_output
from rewards.sandbox.inside.coverage import ProbeMemory
from rewards.sandbox.inside.frames import parse
from rewards.sandbox.inside.replies import GONE, Gone, Raised, read_loaded, read_verdict
from rewards.sandbox.worker import zygote
from rewards.sandbox.worker.direct_calls import NeedsJudge, as_calls, called_run
from rewards.sandbox.worker.execution import Child, Clock, Limits, ServerHandle, WorkerUnusable
from rewards.sandbox.worker.streams import memory_file, rewrite


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


WireResult = dict[str, Any]
MOMENT = 0.2
"""Seconds within which a process that closed its channel should exit."""
_TOO_LARGE = b'{"outcome": "memory", "detail": "values of the program take more memory than it may use"}'


class Check:
    """One program and its cases, on one slot."""

    def __init__(
        self, job: dict[str, Any], clock: Clock, programs: ServerHandle, judges: ServerHandle, limits: Limits
    ) -> None:
        self.job = job
        self.clock = clock
        self.programs = programs
        self.judges = judges
        self.limits = limits
        self.seconds: float = job["timeout"]
        self.total = whole_check(self.seconds, len(job["cases"]), job.get("total_timeout"))
        self.spent_before = clock.charged
        self.output_limit: int = job["output_limit"]
        self.timeouts = 0
        self.give_up = False
        self.executed = ProbeMemory() if job.get("coverage") else None

    def child(
        self, payload: dict[str, Any], limits: Limits, *, stdin: int | None = None, calls: socket.socket | None = None
    ) -> Child:
        """Start a process of the program, with probes if the job asks for coverage."""
        if self.executed is None:
            return Child(self.programs, payload, limits, self.output_limit, stdin=stdin, calls=calls)
        payload, memory = {**payload, "covered": True}, self.executed.descriptor
        return Child(self.programs, payload, limits, self.output_limit, stdin=stdin, calls=calls, executed=memory)

    def results(self) -> Iterator[WireResult]:
        """Yield one result per case, in order, each as soon as it is known.

        With coverage each has, as `executed`, the statements that no earlier case executed.
        """
        if self.executed is None:
            yield from self._results()
            return
        try:
            for result in self._results():
                new = self.executed.new()
                yield result if new is None else {**result, "executed": new}
        finally:
            self.executed.close()

    def _results(self) -> Iterator[WireResult]:
        cases = self.job["cases"]
        start = 0
        while start < len(cases):
            printed = "stdin" in cases[start]
            end = start
            while end < len(cases) and ("stdin" in cases[end]) == printed:
                end += 1
            yield from self._printed(cases[start:end]) if printed else self._judged(cases[start:end])
            start = end

    @property
    def left(self) -> float:
        """Seconds left for the whole check."""
        return self.total - (self.clock.charged - self.spent_before)

    def limited(self, done: Callable[[], bool], children: list[Child]) -> bool:
        """Wait for a case within its own limit and the rest of the check's; returns whether it finished."""
        return self.clock.limited(done, children, max(0.001, min(self.seconds, self.left)))

    def _skipped(self) -> WireResult | None:
        """The result of a case skipped under the limits of the request, or None to run it."""
        if self.left <= 0:
            return {
                "outcome": outcomes.TIMEOUT,
                "detail": f"not run: the {self.total:g} s for all cases are used up",
                "time": 0.0,
            }
        if self.timeouts >= self.job["max_timeouts"]:
            return {"outcome": outcomes.TIMEOUT, "detail": f"not run: {self.timeouts} cases had timed out", "time": 0.0}
        if self.give_up:
            return {"outcome": outcomes.WRONG_ANSWER, "detail": "not run: an earlier case failed", "time": 0.0}
        return None

    def _note(self, result: WireResult) -> WireResult:
        self.timeouts += result["outcome"] == outcomes.TIMEOUT
        self.give_up = self.give_up or (self.job["stop_on_failure"] and result["outcome"] != outcomes.PASSED)
        return result

    def _printed(self, cases: list[dict[str, Any]]) -> Iterator[WireResult]:
        reuse = len(cases) > 1
        run: PrintedRun | None = None
        try:
            for case in cases:
                skipped = self._skipped()
                if skipped:
                    yield skipped
                    continue
                if run is not None and run.alive:
                    result = run.again(case)
                    # Only a fresh process may fail a case: state left by an earlier run must not.
                    if result["outcome"] not in (outcomes.PASSED, outcomes.TIMEOUT):
                        run.close()
                        run = PrintedRun(self, case, reuse)
                        failed_again = run.result["outcome"] != outcomes.PASSED
                        reuse = reuse and failed_again
                        result = run.result
                else:
                    if run is not None:
                        run.close()
                    run = PrintedRun(self, case, reuse)
                    result = run.result
                yield self._note(result)
        finally:
            if run is not None:
                run.close()

    def _judged(self, cases: list[dict[str, Any]]) -> Iterator[WireResult]:
        # A process of the program runs the cases from `first` on; those before `done` have their results.
        first = done = 0
        calls = as_calls(cases, self.job.get("setup") or "", frozenset(self.job.get("entry_points") or ()))
        while done < len(cases):
            skipped = self._skipped()
            if skipped:
                yield skipped
                done += 1
                continue
            run = called_run(self, calls[first:]) if calls else judged_run(self, cases[first:])
            at = first
            try:
                with contextlib.closing(run):
                    for result in run:
                        at += 1
                        if at <= done:
                            continue  # known: these cases run again only for the state that they leave
                        done += 1
                        yield self._note(result)
                        if self._skipped():
                            break
                first = at
            except NeedsJudge:
                # Judges read the answers from this case on.
                calls = None

    def load_failure(self, program: Child, error: Raised | None, timed_out: bool) -> WireResult:
        """The result for a program that could not be loaded; `error`: what it reported, if anything."""
        if error is None:
            return self.death(program, timed_out)
        if error.syntax:
            program.end(self.clock)
            _, error_type, line = outcomes.classify_end(1, program.stderr.ending())
            return {"outcome": outcomes.SYNTAX_ERROR, "detail": line, "error_type": error_type}
        outcome = outcomes.MEMORY if error.out_of_memory else outcomes.RUNTIME_ERROR
        return {"outcome": outcome, "detail": error.line, "error_type": error.type}

    def death(self, program: Child, timed_out: bool) -> WireResult:
        """The result for a program that did not answer: it timed out, died or misused its channel."""
        if not timed_out:
            # Its channel is closed: give the exit a moment to be reported before killing it.
            self.clock.watch(lambda: program.report is not None, [program], time.monotonic() + MOMENT)
        report = program.end(self.clock)
        if program.over_limit:
            return {"outcome": outcomes.OUTPUT_LIMIT, "detail": f"more than {self.output_limit} bytes of output"}
        if report.killed == zygote.FOR_MEMORY:
            return {"outcome": outcomes.MEMORY, "detail": "memory limit"}
        if timed_out:
            return {"outcome": outcomes.TIMEOUT, "detail": f"more than {self.seconds:g} s"}
        if report.killed:
            detail = "the program closed or misused the channel of its test"
            return {"outcome": outcomes.RUNTIME_ERROR, "detail": detail, "error_type": "SystemExit"}
        code = report.code
        outcome, error_type, line = outcomes.classify_end(code or 1, program.stderr.ending())
        if outcome == outcomes.SYNTAX_ERROR:
            outcome = outcomes.RUNTIME_ERROR
        detail = line or f"the program ended during a test (exit code {code})"
        return {"outcome": outcome, "detail": detail, "error_type": error_type or "SystemExit", "lost": report.lost}


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
