"""Checks on a server that has only `/run_code`: the judge is sent as one program, the tests in its standard input.

Weaker than on our own server: program and judge are two processes of the same user in the same container
(fusion_driver.py). Printed output is compared here, so cases with stdin are as safe as on our server.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rewards.sandbox import inside
from rewards.sandbox.cases import Case, CaseResult, CheckResult, Program, RunResult, StdioCase, whole_check
from rewards.sandbox.client.transport import BatchOptions, Endpoint, Transient, fusion_result
from rewards.sandbox.inside import fusion_driver, outcomes
from rewards.sandbox.inside.compare import same_output
from rewards.sandbox.inside.frames import BadFrame, parse
from rewards.sandbox.inside.outcomes import KNOWN_GOOD
from rewards.sandbox.inside.replies import GONE, Gone, Raised, read_loaded, read_verdict

QUEUE_PATIENCE = 120.0
"""Seconds that a request may queue in a SandboxFusion server before it runs: its answer arrives all at once."""
_MODULES = (
    "frames", "shared", "codec", "compare", "outcomes", "replies", "exports", "proxies", "remote", "coverage",
    "program", "judge", "fusion_driver",
)  # fmt: skip


def request_body(program: dict[str, Any], options: BatchOptions) -> dict[str, Any]:
    """The body of a `/run_code` request."""
    return {
        "code": program["code"],
        "language": program["language"],
        "stdin": program.get("stdin"),
        "files": program.get("files") or {},
        "run_timeout": options.timeout,
        "compile_timeout": options.compile_timeout,
        "memory_limit_MB": options.memory_mb,
    }


async def run(endpoint: Endpoint, program: dict[str, Any], options: BatchOptions) -> RunResult:
    """Run one program through `/run_code`; raises `Transient` or `InfrastructureError`."""
    # The program's own time starts only when the server gets to it.
    patience = options.timeout + options.compile_timeout + QUEUE_PATIENCE
    return fusion_result(await endpoint.run_code(request_body(program, options), patience))


async def check(endpoint: Endpoint, program: Program, cases: list[Case], options: BatchOptions) -> CheckResult:
    """Check through `/run_code`: one request per case with stdin and one per row of consecutive other cases."""
    results: list[CaseResult] = []
    while len(results) < len(cases):
        skipped = _skipped(results, options, len(cases))
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
                results.append(_skipped(results, options, len(cases)) or result)
    return CheckResult(results)


def _skipped(results: list[CaseResult], options: BatchOptions, count: int) -> CaseResult | None:
    total = whole_check(options.timeout, count, options.total_timeout)
    if sum(result.busy_seconds for result in results) >= total:
        return CaseResult(outcomes.TIMEOUT, f"not run: the {total:g} s for all cases are used up")
    timeouts = sum(result.outcome == outcomes.TIMEOUT for result in results)
    if timeouts >= options.max_timeouts:
        return CaseResult(outcomes.TIMEOUT, f"not run: {timeouts} cases had timed out")
    if options.stop_on_failure and any(not result.passed for result in results):
        return CaseResult(outcomes.WRONG_ANSWER, "not run: an earlier case failed")
    return None


async def _printed(endpoint: Endpoint, program: Program, case: Any, options: BatchOptions) -> CaseResult:
    body = {"code": program.code, "language": program.language, "files": program.files, "stdin": case.stdin}
    result = await run(endpoint, body, options)
    outcome, detail = result.outcome, result.error_line
    if result.passed and not same_output(result.stdout, case.expected, layout=case.layout):
        outcome, detail = outcomes.WRONG_ANSWER, f"printed {result.stdout!r:.200}, expected {case.expected!r:.200}"
    return CaseResult(outcome, detail, result.error_type, result.execution_time, result.busy_seconds)


async def _judged(
    endpoint: Endpoint, program: Program, row: list[dict[str, Any]], options: BatchOptions
) -> list[CaseResult]:
    """Results of the cases up to and including the first one that kills the program; of all cases if it can't be
    loaded.

    If the judge reports nothing twice, but does so for a known good program, the program silenced it.
    """
    for _ in range(2):
        results = await _once(endpoint, program, row, options)
        if isinstance(results, list):
            return results
    good, tests = Program(KNOWN_GOOD["code"]), KNOWN_GOOD["cases"]
    probe = await _once(endpoint, good, tests, replace(options, timeout=max(10.0, options.timeout), total_timeout=None))
    if not isinstance(probe, list) or any(not case.passed for case in probe):
        raise Transient(f"the judge reported nothing: {results}")
    detail = f"the program killed or silenced its judge: {results}"
    return [CaseResult(outcomes.RUNTIME_ERROR, detail[:500], "SandboxMisuse")] * len(row)


async def _once(
    endpoint: Endpoint, program: Program, row: list[dict[str, Any]], options: BatchOptions
) -> list[CaseResult] | str:
    """The results of one request, or the reason why there are none."""
    nonce = secrets.token_hex(16)
    total = whole_check(options.timeout, len(row), options.total_timeout)
    tests = {
        "nonce": nonce,
        "timeout": options.timeout,
        "total": total,
        "setup": options.setup,
        "entry_points": options.entry_points,
        "cases": row,
    }
    stdin = "".join(f"{len(text)}\n{text}" for text in (json.dumps(program.code), json.dumps(tests)))
    body = {"code": wrapper(), "language": "python", "files": program.files, "stdin": stdin}
    seconds = total + options.timeout + 2
    result = await run(endpoint, body, BatchOptions(timeout=seconds, memory_mb=options.memory_mb))
    try:
        loaded, verdicts = _messages(result.stdout, nonce)
    except BadFrame as error:
        if result.outcome in (outcomes.TIMEOUT, outcomes.MEMORY):
            return [CaseResult(result.outcome, result.error_line)] * len(row)
        return f"{error} {result.error_line or result.stderr[-300:]}"
    if loaded is not None:
        return [_load_failure(loaded)] * len(row)
    if not verdicts and result.passed:
        return "the judge's output is truncated"
    # Without a verdict the whole request ran out of time or memory in the first case.
    first, *others = [_case_result(verdict) for verdict in verdicts[: len(row)]] or [CaseResult(result.outcome)]
    return [replace(first, busy_seconds=result.busy_seconds), *others]


def _messages(stdout: str, nonce: str) -> tuple[Raised | Gone | None, list[dict[str, Any]]]:
    """The judge's messages, up to where the server truncated them: the result of loading, and verdicts.

    Raises `BadFrame` if the first message is missing.
    """
    prefix = f"{fusion_driver.MARK} {nonce} "
    bodies = [line[len(prefix) :].encode() for line in stdout.split("\n") if line.startswith(prefix)]
    if not bodies:
        raise BadFrame("no message from the judge.")
    loaded = read_loaded(parse(bodies[0]))
    verdicts = []
    with contextlib.suppress(BadFrame):  # the last one may be truncated
        for body in bodies[1:]:
            verdicts.append(read_verdict(parse(body)))
    return loaded, verdicts


def _load_failure(error: Raised | Gone) -> CaseResult:
    if isinstance(error, Gone):
        outcome = outcomes.TIMEOUT if error.detail == "timeout" else outcomes.RUNTIME_ERROR
        return CaseResult(outcome, "the program ended during loading" if outcome != outcomes.TIMEOUT else None)
    if error.syntax:
        return CaseResult(outcomes.SYNTAX_ERROR, error.line, error.type)
    return CaseResult(outcomes.MEMORY if error.out_of_memory else outcomes.RUNTIME_ERROR, error.line, error.type)


def _case_result(verdict: dict[str, Any]) -> CaseResult:
    outcome, detail = verdict["outcome"], verdict.get("detail")
    if outcome == GONE:
        timed_out = detail == "timeout"
        outcome = outcomes.TIMEOUT if timed_out else outcomes.RUNTIME_ERROR
        detail = detail if timed_out else "the program ended during a test"
    return CaseResult(outcome, detail, verdict.get("error_type"))


@cache
def wrapper() -> str:
    """The program that contains the judge: the sources of modules of this package and a call of their driver."""
    folder = Path(inside.__file__).parent
    sources = {name: (folder / f"{name}.py").read_text() for name in _MODULES}
    return f"""import sys, types
for name in ("rewards", "rewards.sandbox", "rewards.sandbox.inside"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, source in {sources!r}.items():
    module = types.ModuleType("rewards.sandbox.inside." + name)
    module.__file__ = name + ".py"
    sys.modules[module.__name__] = module
    setattr(sys.modules["rewards.sandbox.inside"], name, module)
    exec(compile(source, name + ".py", "exec"), module.__dict__)
sys.modules["rewards.sandbox.inside.fusion_driver"].main()
"""
