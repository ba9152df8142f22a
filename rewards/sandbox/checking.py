"""The worker's part of a check: runs the cases of one program and says what each came to.

Printed output is compared here, where no program's code has ever run. Values are compared in a judge process
(judge.py); what is read here from its channel was written by the judge, because the program has no descriptor of it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Generator, Iterator
from typing import Any

from rewards.sandbox import outcomes, zygote
from rewards.sandbox.calls import TooLarge, called_run
from rewards.sandbox.codec import send_frame
from rewards.sandbox.compare import same_output
from rewards.sandbox.execution import Child, Clock, Limits, Server, SlotBroken
from rewards.sandbox.literal import as_calls

Result = dict[str, Any]


def memory_file(text: str) -> int:
    """A descriptor of an in-memory file that holds the text, at its beginning."""
    descriptor = os.memfd_create("input")
    rewrite(descriptor, text)
    return descriptor


def rewrite(descriptor: int, text: str) -> None:
    """Replace the content of an in-memory file and go back to its beginning, for every process that has it open."""
    os.ftruncate(descriptor, 0)
    data = memoryview(text.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    while data:
        data = data[os.write(descriptor, data) :]
    os.lseek(descriptor, 0, os.SEEK_SET)


class Check:
    """One program and its cases, on one slot."""

    def __init__(self, job: dict[str, Any], clock: Clock, programs: Server, judges: Server, limits: Limits) -> None:
        self.job = job
        self.clock = clock
        self.programs = programs
        self.judges = judges
        self.limits = limits
        self.seconds: float = job["timeout"]
        self.output_limit: int = job["output_limit"]
        self.timeouts = 0
        self.give_up = False

    def results(self) -> Iterator[Result]:
        """One result for each case, in order, each as soon as it is known."""
        cases = self.job["cases"]
        start = 0
        while start < len(cases):
            printed = "stdin" in cases[start]
            end = start
            while end < len(cases) and ("stdin" in cases[end]) == printed:
                end += 1
            yield from self._printed(cases[start:end]) if printed else self._judged(cases[start:end])
            start = end

    def _skipped(self) -> Result | None:
        """The result of a case that is not run any more, by the rules of the request."""
        if self.timeouts >= self.job["max_timeouts"]:
            return {"outcome": outcomes.TIMEOUT, "detail": f"not run: {self.timeouts} cases had timed out", "time": 0.0}
        if self.give_up:
            return {"outcome": outcomes.WRONG_ANSWER, "detail": "not run: an earlier case failed", "time": 0.0}
        return None

    def _note(self, result: Result) -> Result:
        self.timeouts += result["outcome"] == outcomes.TIMEOUT
        self.give_up = self.give_up or (self.job["stop_on_failure"] and result["outcome"] != outcomes.PASSED)
        return result

    def _printed(self, cases: list[dict[str, Any]]) -> Iterator[Result]:
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
                    # Only a process of its own may fail a case: what an earlier run left behind must not.
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

    def _judged(self, cases: list[dict[str, Any]]) -> Iterator[Result]:
        done = 0
        calls = as_calls(cases, self.job.get("setup") or "")
        while done < len(cases):
            skipped = self._skipped()
            if skipped:
                yield skipped
                done += 1
                continue
            run = called_run(self, calls[done:]) if calls else self._judged_run(cases[done:])
            try:
                with contextlib.closing(run):
                    for result in run:
                        done += 1
                        yield self._note(result)
                        if self._skipped():
                            break
            except TooLarge:
                # From this case on, judges read the answers.
                calls = None

    def _judged_run(self, cases: list[dict[str, Any]]) -> Generator[Result, None, None]:
        """Results of the cases up to the first that ends the program's process, that one included."""
        theirs, ours = socket.socketpair()
        budget = int(self.seconds * (len(cases) + 1)) + 2
        limits = Limits(self.limits.memory_mb, budget)
        payload = {"mode": "serve", "code": self.job["code"], "files": self.job.get("files")}
        tests = {"mode": "judge", "setup": self.job.get("setup"), "cases": cases}
        program = judge = None
        try:
            program = Child(self.programs, payload, limits, self.output_limit, calls=theirs)
            judge = Child(self.judges, tests, limits, self.output_limit, calls=ours)
            theirs.close()
            ours.close()
            yield from self._verdicts(program, judge, len(cases))
        finally:
            theirs.close()
            ours.close()
            for child in (judge, program):
                if child is not None:
                    child.end(self.clock)
                    child.close()

    def _verdicts(self, program: Child, judge: Child, count: int) -> Iterator[Result]:
        loaded = self._next(program, judge)
        if loaded is None or not loaded.get("loaded"):
            error = loaded["error"] if loaded else None
            failure = self.load_failure(program, None if error and "gone" in error else error, loaded is None)
            for _ in range(count):
                yield {**failure, "time": 0.0}
            return
        for _ in range(count):
            start = time.monotonic()
            verdict = self._next(program, judge)
            elapsed = time.monotonic() - start
            if verdict is None or verdict["outcome"] == "gone":
                yield {**self.death(program, verdict is None), "time": elapsed}
                return
            yield {**verdict, "time": elapsed}

    def _next(self, program: Child, judge: Child) -> dict[str, Any] | None:
        """The judge's next message; None when the time for it is over."""

        def arrived() -> bool:
            return bool(judge.messages) or judge.report is not None

        in_time = self.clock.limited(arrived, [program, judge], self.seconds)
        message = judge.take()
        if message is None and in_time:
            raise SlotBroken(f"the judge ended without a verdict: {judge.stderr.ending()[-500:]}")
        return message

    def load_failure(self, program: Child, error: dict[str, Any] | None, timed_out: bool) -> Result:
        """What a program came to that could not be loaded; `error`: what it reported, if it lived to."""
        if not isinstance(error, dict):
            return self.death(program, timed_out)
        if error.get("syntax"):
            program.end(self.clock)
            _, error_type, line = outcomes.classify_end(1, program.stderr.ending())
            return {"outcome": outcomes.SYNTAX_ERROR, "detail": line, "error_type": error_type}
        outcome = outcomes.MEMORY if error.get("type") == "MemoryError" else outcomes.RUNTIME_ERROR
        return {"outcome": outcome, "detail": str(error.get("line"))[:2000], "error_type": str(error.get("type"))[:200]}

    def death(self, program: Child, timed_out: bool) -> Result:
        """What a program came to that did not answer, because its time was over or its process gone."""
        if not timed_out:
            # Its channel is closed; give the end itself a moment to be reported before it is enforced.
            self.clock.watch(lambda: program.report is not None, [program], time.monotonic() + 1.0)
        report = program.end(self.clock)
        if program.over_limit:
            return {"outcome": outcomes.OUTPUT_LIMIT, "detail": f"more than {self.output_limit} bytes of output"}
        if report.killed == zygote.FOR_MEMORY:
            return {"outcome": outcomes.MEMORY, "detail": "memory limit"}
        if timed_out:
            return {"outcome": outcomes.TIMEOUT, "detail": f"more than {self.seconds:g} s"}
        code = report.code
        outcome, error_type, line = outcomes.classify_end(code or 1, program.stderr.ending())
        if outcome == outcomes.SYNTAX_ERROR:
            outcome = outcomes.RUNTIME_ERROR
        detail = line or f"the program ended in the middle of a test (exit code {code})"
        return {"outcome": outcome, "detail": detail, "error_type": error_type or "SystemExit"}


class PrintedRun:
    """A process that runs the program for one input, and for more while it stays well-behaved."""

    def __init__(self, check: Check, case: dict[str, Any], reuse: bool) -> None:
        self.check = check
        self.input = memory_file(case["stdin"])
        # One process may see all inputs: the processor time of all of them is its limit.
        runs = len(check.job["cases"]) if reuse else 1
        limits = Limits(check.limits.memory_mb, int(check.seconds * runs) + 2)
        payload = {"mode": "script", "code": check.job["code"], "files": check.job.get("files"), "reuse": reuse}
        self.child = Child(check.programs, payload, limits, check.output_limit, stdin=self.input)
        self.alive = True
        self.result = self._finish(case)

    def again(self, case: dict[str, Any]) -> Result:
        """Run the program once more in the same process."""
        rewrite(self.input, case["stdin"])
        self.child.stdout.restart()
        self.child.stderr.restart()
        try:
            send_frame(self.child.control, {"next": True})
        except OSError:
            self.alive = False
        return self._finish(case)

    def _finish(self, case: dict[str, Any]) -> Result:
        child, check = self.child, self.check
        start = time.monotonic()

        def over() -> bool:
            return bool(child.messages) or child.report is not None

        in_time = check.clock.limited(over, [child], check.seconds)
        elapsed = time.monotonic() - start
        if child.take() is not None and child.report is None:
            child.drain()
            self.alive = not child.over_limit
            code: int | None = 0
        else:
            self.alive = False
            child.end(check.clock)
            code = _return_code(child, in_time)
        return {**self._compared(case, code), "time": elapsed}

    def _compared(self, case: dict[str, Any], code: int | None) -> Result:
        child = self.child
        if child.over_limit:
            return {"outcome": outcomes.OUTPUT_LIMIT, "detail": f"more than {child.stdout.limit} bytes of output"}
        if child.report is not None and child.report.killed == zygote.FOR_MEMORY:
            return {"outcome": outcomes.MEMORY, "detail": "memory limit"}
        outcome, error_type, line = outcomes.classify_end(code, child.stderr.ending())
        if outcome != outcomes.PASSED:
            return {"outcome": outcome, "detail": line or f"exit code {code}", "error_type": error_type}
        text = child.stdout.text()
        if same_output(text, case["expected"]):
            return {"outcome": outcomes.PASSED}
        return {
            "outcome": outcomes.WRONG_ANSWER,
            "detail": f"printed {text!r:.200}, expected {case['expected']!r:.200}",
        }

    def close(self) -> None:
        """End the process and release what belongs to it."""
        if self.child.report is None:
            self.child.end(self.check.clock)
        self.child.close()
        os.close(self.input)


def _return_code(child: Child, in_time: bool) -> int | None:
    assert child.report is not None
    if not in_time:
        return None
    return child.report.code
