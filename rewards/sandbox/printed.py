"""A run of the cases that look at printed output, compared by the worker; while all goes well, one process for them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from rewards.sandbox import outcomes, program, zygote
from rewards.sandbox.codec import shown
from rewards.sandbox.compare import same_output
from rewards.sandbox.execution import Child, Limits
from rewards.sandbox.streams import memory_file, rewrite

if TYPE_CHECKING:
    from rewards.sandbox.checking import Check, Result


class PrintedRun:
    """A process that runs the program for one input, and for more while it stays well-behaved."""

    def __init__(self, check: Check, case: dict[str, Any], reuse: bool) -> None:
        self.check = check
        self.input = memory_file(case["stdin"])
        # One process may see all inputs: the processor time of all of them is its limit.
        limits = Limits(check.limits.memory_mb, int(check.total if reuse else check.seconds) + 2)
        payload = {"mode": "script", "code": check.job["code"], "files": check.job.get("files"), "reuse": reuse}
        self.child = Child(check.programs, payload, limits, check.output_limit, stdin=self.input)
        self.alive = True
        try:
            self.result = self._finish(case)
        except BaseException:
            self.close()
            raise

    def again(self, case: dict[str, Any]) -> Result:
        """Run the program once more in the same process."""
        rewrite(self.input, case["stdin"])
        self.child.stdout.restart()
        self.child.stderr.restart()
        try:
            self.child.control.send(program.NEXT)
        except OSError:
            self.alive = False
        return self._finish(case)

    def _finish(self, case: dict[str, Any]) -> Result:
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

    def _compared(self, case: dict[str, Any], code: int | None) -> Result:
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
