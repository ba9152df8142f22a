"""One program and its cases on one slot of a worker: limits, processes, and the results of those that end badly."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from rewards.sandbox.cases import whole_check
from rewards.sandbox.inside import outcomes
from rewards.sandbox.inside.coverage import ProbeMemory
from rewards.sandbox.inside.replies import Raised
from rewards.sandbox.worker import zygote
from rewards.sandbox.worker.execution import Child, Clock, Limits, ServerHandle

WireResult = dict[str, Any]
MOMENT = 0.2
"""Seconds within which a process that closed its channel should exit."""


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

    @property
    def left(self) -> float:
        """Seconds left for the whole check."""
        return self.total - (self.clock.charged - self.spent_before)

    def limited(self, done: Callable[[], bool], children: list[Child]) -> bool:
        """Wait for a case within its own limit and the rest of the check's; returns whether it finished."""
        return self.clock.limited(done, children, max(0.001, min(self.seconds, self.left)))

    def skipped(self) -> WireResult | None:
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

    def noted(self, result: WireResult) -> WireResult:
        """The result of a case that ran; the limits of the request count it."""
        self.timeouts += result["outcome"] == outcomes.TIMEOUT
        self.give_up = self.give_up or (self.job["stop_on_failure"] and result["outcome"] != outcomes.PASSED)
        return result

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
