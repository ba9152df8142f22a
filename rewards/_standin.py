"""Stand-in for `rewards.sandbox` until that lands: one subprocess a call, no isolation. Not for untrusted code."""

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field

_CHECK = """
import json, sys
job = json.load(sys.stdin)
scope = {}
exec(job["program"], scope)
out = []
for case in job["cases"]:
    try:
        exec(case["source"], scope)
        out.append(True)
    except AssertionError:
        out.append(False)
    except Exception:
        out.append(None)
print(json.dumps(out))
"""


class InfrastructureError(RuntimeError):
    """The sandbox could not judge."""


@dataclass
class RunResult:
    outcome: str
    stdout: str
    stderr: str
    return_code: int
    execution_time: float = 0.0
    error_type: str | None = None
    error_line: int | None = None


@dataclass
class CheckResult:
    fraction: float
    outcomes: list[str] = field(default_factory=list)


class Sandbox:
    def __init__(self, url: str | None = None):
        self.url = url

    async def run(self, code, *, language="python", stdin=None, timeout=10.0, memory_mb=1024) -> RunResult:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            "-c",
            code,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started = time.perf_counter()
        try:
            out, err = await asyncio.wait_for(process.communicate((stdin or "").encode()), timeout)
        except asyncio.TimeoutError:
            process.kill()
            return RunResult("timeout", "", "", -9)
        ok = process.returncode == 0
        return RunResult(
            "passed" if ok else "runtime_error",
            out.decode(),
            err.decode(),
            process.returncode or 0,
            time.perf_counter() - started,
        )

    async def check(self, program, cases, *, timeout=10.0, memory_mb=1024) -> CheckResult:
        try:
            compile(program, "answer", "exec")
        except (SyntaxError, ValueError):
            return CheckResult(0.0, ["syntax_error"] * len(cases))
        result = await self.run(_CHECK, stdin=json.dumps({"program": program, "cases": cases}), timeout=timeout)
        if result.outcome != "passed":
            return CheckResult(0.0, [result.outcome] * len(cases))
        flags = json.loads(result.stdout)
        names = {True: "passed", False: "wrong_answer", None: "runtime_error"}
        return CheckResult(sum(flag is True for flag in flags) / len(flags), [names[flag] for flag in flags])
