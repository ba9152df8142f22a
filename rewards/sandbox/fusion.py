"""Checks on a server that has `/run_code` only: the judge travels inside one program, the tests behind it in its input.

Weaker than on our own server: program and judge are two processes of the same user in the same container
(fusion_driver.py). Printed output is compared here, so for cases with stdin nothing weakens.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rewards.sandbox import fusion_driver, outcomes
from rewards.sandbox.answers import Transient, fusion_result
from rewards.sandbox.cases import Case, CaseResult, CheckResult, Program, RunResult, StdioCase
from rewards.sandbox.compare import same_output
from rewards.sandbox.transport import Endpoint, Options

QUEUE_PATIENCE = 120.0
"""Seconds that a request may wait in a SandboxFusion server before it starts to run: its answer comes in one piece."""
_MODULES = (
    "frames", "codec", "compare", "replies", "exports", "proxies", "remote", "program", "judge", "fusion_driver",
)  # fmt: skip


def request_body(program: dict[str, Any], options: Options) -> dict[str, Any]:
    """A `/run_code` body."""
    return {
        "code": program["code"],
        "language": program["language"],
        "stdin": program.get("stdin"),
        "files": program.get("files") or {},
        "run_timeout": options.timeout,
        "compile_timeout": options.compile_timeout,
        "memory_limit_MB": options.memory_mb,
    }


async def run(endpoint: Endpoint, program: dict[str, Any], options: Options) -> RunResult:
    """Run one program by `/run_code`; raises `Transient` or `InfrastructureError`."""
    # The program's own time does not start before the server gets to it.
    patience = options.timeout + options.compile_timeout + QUEUE_PATIENCE
    return fusion_result(await endpoint.run_code(request_body(program, options), patience))


async def check(endpoint: Endpoint, program: Program, cases: list[Case], options: Options) -> CheckResult:
    """Check by `/run_code`, one request for a case with stdin and one for a row of others."""
    results: list[CaseResult] = []
    while len(results) < len(cases):
        skipped = _skipped(results, options)
        if skipped is not None:
            results.append(skipped)
        elif isinstance(cases[len(results)], StdioCase):
            results.append(await _printed(endpoint, program, cases[len(results)], options))
        else:
            row = []
            for case in cases[len(results) :]:
                if isinstance(case, StdioCase):
                    break
                row.append(case.to_wire())
            for result in await _judged(endpoint, program, row, options):
                results.append(_skipped(results, options) or result)
    return CheckResult(results)


def _skipped(results: list[CaseResult], options: Options) -> CaseResult | None:
    timeouts = sum(result.outcome == outcomes.TIMEOUT for result in results)
    if timeouts >= options.max_timeouts:
        return CaseResult(outcomes.TIMEOUT, f"not run: {timeouts} cases had timed out")
    if options.stop_on_failure and any(not result.passed for result in results):
        return CaseResult(outcomes.WRONG_ANSWER, "not run: an earlier case failed")
    return None


async def _printed(endpoint: Endpoint, program: Program, case: Any, options: Options) -> CaseResult:
    body = {"code": program.code, "language": program.language, "files": program.files, "stdin": case.stdin}
    result = await run(endpoint, body, options)
    outcome, detail = result.outcome, result.error_line
    if result.passed and not same_output(result.stdout, case.expected, layout=case.layout):
        outcome, detail = outcomes.WRONG_ANSWER, f"printed {result.stdout!r:.200}, expected {case.expected!r:.200}"
    return CaseResult(outcome, detail, result.error_type, result.execution_time, result.busy_seconds)


async def _judged(
    endpoint: Endpoint, program: Program, row: list[dict[str, Any]], options: Options
) -> list[CaseResult]:
    """Results of the cases up to the first that ends the program, that one included; all of them if it can't be
    loaded."""
    nonce = secrets.token_hex(16)
    tests = {"nonce": nonce, "timeout": options.timeout, "setup": options.setup, "cases": row}
    stdin = "".join(f"{len(text)}\n{text}" for text in (json.dumps(program.code), json.dumps(tests)))
    seconds = options.timeout * (len(row) + 1) + 5
    body = {"code": wrapper(), "language": "python", "files": program.files, "stdin": stdin}
    result = await run(endpoint, body, Options(timeout=seconds, memory_mb=options.memory_mb))
    messages = _messages(result.stdout, nonce)
    if not messages:
        if result.outcome in (outcomes.TIMEOUT, outcomes.MEMORY):
            return [CaseResult(result.outcome, result.error_line)] * len(row)
        raise Transient(f"the judge said nothing: {result.error_line or result.stderr[-300:]}")
    loaded, *verdicts = messages
    if not loaded["loaded"]:
        return [_load_failure(loaded["error"])] * len(row)
    if not verdicts and result.passed:
        raise Transient("the judge's output is cut")
    # Without a verdict the whole request ran out of its time or memory in the first case.
    first, *others = [_case_result(verdict) for verdict in verdicts[: len(row)]] or [CaseResult(result.outcome)]
    return [replace(first, busy_seconds=result.busy_seconds), *others]


def _messages(stdout: str, nonce: str) -> list[dict[str, Any]]:
    """What the judge said, up to where the server cut it."""
    prefix = f"{fusion_driver.MARK} {nonce} "
    messages = []
    for line in stdout.split("\n"):
        if line.startswith(prefix):
            with contextlib.suppress(ValueError):  # the last one may be cut
                messages.append(json.loads(line[len(prefix) :]))
    return messages


def _load_failure(error: dict[str, Any]) -> CaseResult:
    if error.get("gone"):
        outcome = outcomes.TIMEOUT if error.get("detail") == "timeout" else outcomes.RUNTIME_ERROR
        return CaseResult(outcome, "the program ended while it was loaded" if outcome != outcomes.TIMEOUT else None)
    if error.get("syntax"):
        return CaseResult(outcomes.SYNTAX_ERROR, error.get("line"), error.get("type"))
    outcome = outcomes.MEMORY if error.get("type") == "MemoryError" else outcomes.RUNTIME_ERROR
    return CaseResult(outcome, error.get("line"), error.get("type"))


def _case_result(verdict: dict[str, Any]) -> CaseResult:
    outcome, detail = verdict["outcome"], verdict.get("detail")
    if outcome == "gone":
        timed_out = detail == "timeout"
        outcome = outcomes.TIMEOUT if timed_out else outcomes.RUNTIME_ERROR
        detail = detail if timed_out else "the program ended in the middle of a test"
    return CaseResult(outcome, detail, verdict.get("error_type"))


@cache
def wrapper() -> str:
    """The program that carries the judge: the sources of five modules of this package and a start."""
    folder = Path(__file__).parent
    sources = {name: (folder / f"{name}.py").read_text() for name in _MODULES}
    return f"""import sys, types
for name in ("rewards", "rewards.sandbox"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, source in {sources!r}.items():
    module = types.ModuleType("rewards.sandbox." + name)
    module.__file__ = name + ".py"
    sys.modules[module.__name__] = module
    setattr(sys.modules["rewards.sandbox"], name, module)
    exec(compile(source, name + ".py", "exec"), module.__dict__)
sys.modules["rewards.sandbox.fusion_driver"].main()
"""
