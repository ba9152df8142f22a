"""Checks on a server that has `/run_code` only: the tests travel inside one program."""

from __future__ import annotations

from typing import Any

from rewards.sandbox.cases import Case, CheckResult, Program
from rewards.sandbox.transport import Endpoint, Options

QUEUE_PATIENCE = 120.0
"""Seconds that a request may wait in a SandboxFusion server before it starts to run: its answer comes in one piece."""


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


def patience(options: Options) -> float:
    """Seconds to wait for an answer: the program's own time does not start before the server gets to it."""
    return options.timeout + options.compile_timeout + QUEUE_PATIENCE


async def check(endpoint: Endpoint, program: Program, cases: list[Case], options: Options) -> CheckResult:
    raise NotImplementedError
