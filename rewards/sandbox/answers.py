"""What servers' answers mean to the client: results, failures that may pass, failures that stay."""

from __future__ import annotations

import contextlib
from typing import Any

import httpx

from rewards.sandbox import outcomes
from rewards.sandbox.cases import CaseResult, CheckResult, InfrastructureError, RunResult


class Transient(Exception):
    """A failure that may be gone at the next attempt. `retry_after`: seconds that the server asked to wait."""

    def __init__(self, message: str, *, retry_after: float | None = None, unreachable: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.unreachable = unreachable


def unreachable(base: str, error: httpx.HTTPError) -> Transient:
    """What a request that got no answer is to the client."""
    return Transient(f"{base}: {type(error).__name__}: {error}", unreachable=True)


def require_success(base: str, status: int, headers: httpx.Headers, text: str) -> None:
    """Raise `Transient` for a status that may be gone next time, `InfrastructureError` for one that no retry mends."""
    if status == 200:
        return
    if status == 429 or status >= 500:
        retry_after: float | None = 1.0 if status == 429 else None
        with contextlib.suppress(ValueError):
            retry_after = float(headers.get("retry-after", ""))
        raise Transient(f"{base} answered {status}: {text[:200]}", retry_after=retry_after)
    raise InfrastructureError(f"{base} refused the request with {status}: {text[:500]}")


def run_result(answer: dict[str, Any]) -> RunResult:
    """A `RunResult` of our server's result."""
    names = (
        "outcome",
        "stdout",
        "stderr",
        "stdout_truncated",
        "stderr_truncated",
        "return_code",
        "error_type",
        "error_line",
    )
    own = {name: answer[name] for name in names}
    return RunResult(**own, execution_time=answer["time"], busy_seconds=answer.get("busy", answer["time"]))


def check_result(answers: list[dict[str, Any]]) -> CheckResult:
    """A `CheckResult` of our server's results."""
    return CheckResult(
        [
            CaseResult(a["outcome"], a.get("detail"), a.get("error_type"), a.get("time", 0.0), a.get("busy", 0.0))
            for a in answers
        ]
    )


def fusion_result(answer: dict[str, Any]) -> RunResult:
    """A `RunResult` of a SandboxFusion answer, whose classes are read from return codes and standard error."""
    compiled, ran = answer.get("compile_result"), answer.get("run_result")
    part = ran or compiled
    if not isinstance(part, dict):
        raise Transient("the answer has neither a compile nor a run result")
    stderr = part.get("stderr") or ""
    code = None if part.get("status") == "TimeLimitExceeded" else part.get("return_code")
    if code is None and part.get("status") == "Finished":
        raise Transient("a finished program without a return code")
    outcome, error_type, error_line = outcomes.classify_end(code, stderr[-4096:])
    if ran is None and outcome == outcomes.RUNTIME_ERROR:
        outcome = outcomes.SYNTAX_ERROR
    headers = answer.get("_headers") or {}
    cut = headers.get("x-sandbox-truncated", "")
    return RunResult(
        outcome=headers.get("x-sandbox-outcome", outcome),
        stdout=part.get("stdout") or "",
        stderr=stderr,
        stdout_truncated="stdout" in cut,
        stderr_truncated="stderr" in cut,
        return_code=code,
        execution_time=part.get("execution_time") or 0.0,
        busy_seconds=part.get("execution_time") or 0.0,  # what that server tells
        error_type=error_type,
        error_line=error_line,
    )
