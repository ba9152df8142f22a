"""The sandbox's client: runs and checks programs on our server or a SandboxFusion one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rewards.sandbox.cases import (
    MAX_TIMEOUTS,
    MEMORY_MB,
    OUTPUT_LIMIT,
    TIMEOUT_SECONDS,
    Case,
    CheckResult,
    InfrastructureError,
    Program,
    RunResult,
)
from rewards.sandbox.client import accounting, fusion
from rewards.sandbox.client.accounting import capped, is_covering
from rewards.sandbox.client.servers import DEFAULT_CONCURRENCY, Servers, process_limit
from rewards.sandbox.client.transport import BatchOptions, Endpoint, ProgramRun, Transient, check_result, run_result
from rewards.sandbox.inside import outcomes
from rewards.sandbox.server_token import read_token


class Sandbox:
    """Runs model-written programs in isolation and checks whether they are correct.

    `url`: None for this machine's embedded server (started if there is none, stopped with its last user), the base URL
    of a server, a URL with `/run_code`, or a list of these, balanced by load. `concurrency`: maximum programs in flight
    in this process, across all `Sandbox` objects (the last one created decides). `attempts`: tries per program when
    servers fail. `queue_timeout`: seconds to wait for busy servers (429). `token`: the token of the servers in `url`;
    None: the value of SANDBOX_TOKEN, or the content of the file SANDBOX_TOKEN_FILE. `workers`, `isolation` (modes.py):
    for the embedded server.

    All methods raise `InfrastructureError` when a program could not be run and never turn that into a result.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        attempts: int = 5,
        queue_timeout: float = 600.0,
        token: str | None = None,
        workers: int | None = None,
        isolation: str | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        urls = [url] if isinstance(url, str) else list(url or [])
        chosen = (("--workers", workers), ("--isolation", isolation))
        embedded = tuple(str(part) for option in chosen if option[1] for part in option)
        token = token or read_token() if urls else None
        self._servers = Servers(urls, embedded, attempts=attempts, queue_timeout=queue_timeout, token=token)
        process_limit.limit = concurrency

    async def __aenter__(self) -> Sandbox:
        await self._servers.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Release the connections. The embedded server keeps running until the process exits, for later users."""
        await self._servers.close()

    async def run(
        self,
        code: str,
        *,
        language: str = "python",
        stdin: str | None = None,
        files: dict[str, str | None] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        memory_mb: int = MEMORY_MB,
        output_limit: int = OUTPUT_LIMIT,
    ) -> RunResult:
        """Run one program and return its result.

        `timeout`: seconds from its start (not from the request); `memory_mb`: MiB of all its processes together;
        `output_limit`: bytes per stream; `files`: relative path to base64. Raises `InfrastructureError`.
        """
        if not _is_text(code):
            return _unencodable()
        program = {"code": code, "language": language, "stdin": _text(stdin), "files": files or {}}
        options = BatchOptions(timeout=capped(timeout), memory_mb=memory_mb, output_limit=output_limit)
        result = await self._servers.retried(lambda endpoint: _run_at(endpoint, program, options))
        accounting.note(result.busy_seconds, result.outcome == outcomes.TIMEOUT)
        return result

    async def check(
        self,
        program: Program,
        cases: Sequence[Case],
        *,
        setup: str = "",
        timeout: float = TIMEOUT_SECONDS,
        memory_mb: int = MEMORY_MB,
        max_timeouts: int = MAX_TIMEOUTS,
        stop_on_failure: bool = False,
        total_timeout: float | None = None,
        entry_points: Sequence[str] = (),
    ) -> CheckResult:
        """Check a program against test cases, in order, with verdicts that the program can't forge.

        `setup`: statements that run before the tests, in the tests' process. `entry_points`: names that the tests take
        from the program even if a builtin or a library module has that name. `timeout`: seconds for loading the program
        and for each case; `total_timeout`: for all of it together (default: the larger of four times `timeout` and half
        of it per case), after which the remaining cases count as timed out. After `max_timeouts` cases that timed out,
        the rest count as timed out without being run; with `stop_on_failure` the rest count as wrong after the first
        failure. Raises `InfrastructureError`, and `ValueError` or `TypeError` for cases that can't be sent.
        """
        options = BatchOptions(
            timeout=capped(timeout),
            memory_mb=memory_mb,
            setup=setup,
            max_timeouts=max_timeouts,
            stop_on_failure=stop_on_failure,
            total_timeout=total_timeout,
            entry_points=tuple(entry_points),
            coverage=is_covering(),
        )
        return await self._check(program, list(cases), [case.to_wire() for case in cases], options)

    async def _check(
        self, program: Program, cases: list[Case], wire: list[dict[str, Any]], options: BatchOptions
    ) -> CheckResult:
        if not cases:
            return CheckResult([])
        if not _is_text(program.code):
            return check_result([{"outcome": outcomes.SYNTAX_ERROR, "detail": _unencodable().error_line}] * len(cases))
        body = {"code": program.code, "language": program.language, "files": program.files or {}, "cases": wire}
        result = await self._servers.retried(lambda endpoint: _check_at(endpoint, program, cases, body, options))
        timeouts = sum(case.outcome == outcomes.TIMEOUT for case in result.cases)
        accounting.note(result.busy_seconds, timeouts, [case.passed for case in result.cases])
        if options.coverage:
            accounting.note_executed(program.code, result.executed)
        return result

    async def check_many(
        self,
        programs: Sequence[Program],
        cases: Sequence[Case],
        *,
        setup: str = "",
        timeout: float = TIMEOUT_SECONDS,
        memory_mb: int = MEMORY_MB,
        max_timeouts: int = MAX_TIMEOUTS,
        stop_on_failure: bool = False,
        total_timeout: float | None = None,
        entry_points: Sequence[str] = (),
        on_result: Any = None,
    ) -> list[CheckResult | InfrastructureError]:
        """Check many programs against the same cases (counterfactual replays); results in the order of the programs.

        For a program that could not be run the list holds its `InfrastructureError`, so that the others are not lost.
        Equal programs run once. `on_result(index, result)` is called as each one finishes. Other arguments as for
        `check`.
        """
        options = BatchOptions(
            timeout=capped(timeout),
            memory_mb=memory_mb,
            setup=setup,
            max_timeouts=max_timeouts,
            stop_on_failure=stop_on_failure,
            total_timeout=total_timeout,
            entry_points=tuple(entry_points),
        )
        listed, wire = list(cases), [case.to_wire() for case in cases]
        places: dict[tuple[str, str, str], list[int]] = {}
        for index, program in enumerate(programs):
            places.setdefault((program.code, program.language, repr(program.files)), []).append(index)
        results: list[CheckResult | InfrastructureError] = [InfrastructureError("not run")] * len(programs)

        async def one(indices: list[int]) -> None:
            result: CheckResult | InfrastructureError
            try:
                result = await self._check(programs[indices[0]], listed, wire, options)
            except InfrastructureError as error:
                result = error
            for index in indices:
                results[index] = result
                if on_result is not None:
                    on_result(index, result)

        await asyncio.gather(*(one(indices) for indices in places.values()))
        return results


def _is_text(code: str) -> bool:
    try:
        code.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(stdin: str | None) -> str | None:
    return None if stdin is None else stdin.encode("utf-8", "replace").decode()


def _unencodable() -> RunResult:
    line = "SyntaxError: the source has characters that can't be encoded (lone surrogates)"
    return RunResult(outcomes.SYNTAX_ERROR, stderr=line, return_code=1, error_type="SyntaxError", error_line=line)


async def _run_at(endpoint: Endpoint, program: dict[str, Any], options: BatchOptions) -> RunResult:
    if endpoint.has_batch:
        answers = await endpoint.submit(ProgramRun(program, options))
        if len(answers) != 1:
            raise Transient(f"{len(answers)} results for one run")
        return run_result(answers[0])
    return await fusion.run(endpoint, program, options)


async def _check_at(
    endpoint: Endpoint, program: Program, cases: list[Case], body: dict[str, Any], options: BatchOptions
) -> CheckResult:
    if endpoint.has_batch:
        answers = await endpoint.submit(ProgramRun(body, options))
        if len(answers) != len(cases):
            raise Transient(f"{len(answers)} results for {len(cases)} cases")
        return check_result(answers)
    return await fusion.check(endpoint, program, cases, options)
