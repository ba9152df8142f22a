"""Requests to one server and how the client reads its answers.

`Endpoint` sends programs to a server, batches them and tracks its health and load. The functions above it turn answers
into results, into `Transient` (a retry may help) or into `InfrastructureError` (no retry helps).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from rewards.sandbox.cases import (
    MAX_TIMEOUTS,
    MEMORY_MB,
    OUTPUT_LIMIT,
    TIMEOUT_SECONDS,
    CaseResult,
    CheckResult,
    InfrastructureError,
    RunResult,
)
from rewards.sandbox.client.accounting import can_wait
from rewards.sandbox.inside import outcomes

log = logging.getLogger("rewards.sandbox")


class Transient(Exception):
    """A failure that a retry may clear. `retry_after`: seconds that the server requests to wait."""

    def __init__(self, message: str, *, retry_after: float | None = None, unreachable: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.unreachable = unreachable


class ForeignLine(Transient):
    """An answer that does not carry the token of the requesting program: it belongs to another one."""


def unreachable(base: str, error: httpx.HTTPError) -> Transient:
    """The `Transient` for a request that got no answer."""
    return Transient(f"{base}: {type(error).__name__}: {error}", unreachable=True)


def require_success(base: str, status: int, headers: httpx.Headers, text: str) -> None:
    """Raise `Transient` for a status that a retry may clear, `InfrastructureError` for one that no retry fixes."""
    if status == 200:
        return
    if status == 429 or status >= 500:
        retry_after: float | None = 1.0 if status == 429 else None
        with contextlib.suppress(ValueError):
            retry_after = float(headers.get("retry-after", ""))
        raise Transient(f"{base} answered {status}: {text[:200]}", retry_after=retry_after)
    raise InfrastructureError(f"{base} refused the request with {status}: {text[:500]}")


def run_result(answer: dict[str, Any]) -> RunResult:
    """The `RunResult` for our server's result."""
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
    fields = {name: answer[name] for name in names}
    return RunResult(**fields, execution_time=answer["time"], busy_seconds=answer.get("busy", answer["time"]))


def check_result(answers: list[dict[str, Any]]) -> CheckResult:
    """The `CheckResult` for our server's results."""
    cases = [
        CaseResult(a["outcome"], a.get("detail"), a.get("error_type"), a.get("time", 0.0), a.get("busy", 0.0))
        for a in answers
    ]
    return CheckResult(cases, _executed(answers))


def _executed(answers: list[dict[str, Any]]) -> frozenset[int] | None:
    """The executed statements; None where that is not known for a case, or where a limit decided what ran."""
    if any("executed" not in answer or answer["outcome"] not in outcomes.UNLIMITED for answer in answers):
        return None
    return frozenset(statement for answer in answers for statement in answer["executed"])


def fusion_result(answer: dict[str, Any]) -> RunResult:
    """The `RunResult` for a SandboxFusion answer; the outcome is inferred from the return code and standard error."""
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
        busy_seconds=part.get("execution_time") or 0.0,  # all that SandboxFusion reports
        error_type=error_type,
        error_line=error_line,
    )


FLUSH_PROGRAMS = 64
"""Programs in one batch request."""
GATHER_SECONDS = 0.02
"""Seconds for which replays, and programs for a busy server, are collected into one request."""
LARGEST_BODY = 32 << 20
"""Bytes of one batch request with several programs: half of what our server accepts."""
SILENCE = 30.0
"""Seconds without a byte after which a batch stream counts as dead; our server sends something every five."""


@dataclass(frozen=True)
class BatchOptions:
    """Options shared by all programs of one batch request. Times in seconds, sizes in MiB, `output_limit` in bytes."""

    timeout: float = TIMEOUT_SECONDS
    compile_timeout: float = TIMEOUT_SECONDS
    memory_mb: int = MEMORY_MB
    output_limit: int = OUTPUT_LIMIT
    setup: str = ""
    max_timeouts: int = MAX_TIMEOUTS
    stop_on_failure: bool = False
    total_timeout: float | None = None
    entry_points: tuple[str, ...] = ()
    coverage: bool = False


@dataclass
class ProgramRun:
    """One program to run: its wire form and its options."""

    program: dict[str, Any]
    options: BatchOptions


@dataclass(frozen=True, eq=False)
class Waiter:
    """One submission of a program: the future for its results, the results so far and the random token that each
    line of its answer must repeat."""

    program: dict[str, Any]
    future: asyncio.Future[list[dict[str, Any]]]
    results: list[dict[str, Any]] = field(default_factory=list)
    token: str = field(default_factory=lambda: secrets.token_hex(8))


class Endpoint:
    """One server. Not thread-safe: belongs to the event loop that created it."""

    def __init__(self, base: str, client: httpx.AsyncClient) -> None:
        self.base = base
        self.client = client
        self.under_way = 0
        self.workers = 1
        self.has_batch: bool | None = None
        self.has_tokens = self.has_coverage = False
        self.foreign = 0
        """How many of its answers belonged to another program."""
        self._discovering = asyncio.Lock()
        self._down_until = 0.0
        self._failures = 0
        self._queues: dict[BatchOptions, list[Waiter]] = {}
        self._senders: set[asyncio.Task[None]] = set()

    @property
    def load(self) -> float:
        """Programs in flight per worker of that server."""
        return self.under_way / self.workers

    @property
    def down_for(self) -> float:
        """Seconds until this server is tried again; 0.0 while it is thought to be alive."""
        return max(0.0, self._down_until - time.monotonic())

    def note_unreachable(self) -> None:
        """Skip this server for a period that doubles with each outage, up to 30 seconds."""
        self.has_batch = None
        if self.down_for:
            return  # one outage counts once, however many requests it hits
        self._failures += 1
        self._down_until = time.monotonic() + min(30.0, 0.25 * 2 ** min(self._failures, 10))

    def note_alive(self) -> None:
        """Reset the failure count and the waiting period."""
        self._failures = 0
        self._down_until = 0.0

    async def discover(self) -> None:
        """Detect whether the server has the batch route; raises `Transient` if it does not answer."""
        async with self._discovering:
            if self.has_batch is None:
                await self._ask_capabilities()

    async def _ask_capabilities(self) -> None:
        response = await self._request("GET", "/capabilities", timeout=10.0)
        if response.status_code == 429 or response.status_code >= 500:
            raise Transient(f"{self.base} answered {response.status_code}", unreachable=True)
        if response.status_code in (401, 403):
            require_success(self.base, response.status_code, response.headers, response.text)
        has_batch = False
        if response.status_code == 200:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                answer = response.json()
                self.workers = max(1, int(answer["workers"]))
                has_batch = bool(answer["run_batch"]) and bool(answer["checks"])
                self.has_tokens = bool(answer.get("tokens"))
                self.has_coverage = bool(answer.get("coverage"))
        self.has_batch = has_batch
        self.note_alive()

    async def _request(self, method: str, path: str, *, timeout: float, body: Any = None) -> httpx.Response:
        try:
            return await self.client.request(
                method, self.base + path, json=body, timeout=httpx.Timeout(timeout, connect=5.0)
            )
        except httpx.HTTPError as error:
            raise unreachable(self.base, error) from None

    async def run_code(self, body: dict[str, Any], patience: float) -> dict[str, Any]:
        """Send one SandboxFusion request and return the answer, which holds a program's result.

        `patience`: seconds for the whole answer, including time in the server's queue. Raises `Transient`, or
        `InfrastructureError` for an answer that no retry fixes.
        """
        response = await self._request("POST", "/run_code", timeout=patience, body=body)
        require_success(self.base, response.status_code, response.headers, response.text)
        self.note_alive()
        try:
            answer = response.json()
            status = answer["status"]
        except (ValueError, KeyError, TypeError):
            raise Transient(f"{self.base} sent an answer that can't be read: {response.text[:200]!r}") from None
        if status == "SandboxError":
            raise Transient(f"{self.base}: SandboxError: {str(answer.get('message'))[:500]}")
        answer["_headers"] = response.headers
        return dict(answer)

    def submit(self, work: ProgramRun) -> asyncio.Future[list[dict[str, Any]]]:
        """Put a program into the next batch request; the future gets the results, or `Transient`."""
        loop = asyncio.get_running_loop()
        waiter = Waiter(work.program, loop.create_future())
        queue = self._queues.setdefault(work.options, [])
        queue.append(waiter)
        if len(queue) == 1:
            # An idle server gets a request at once, with everything that this turn of the event loop submits. A busy
            # one would only queue the programs, so they wait here to be batched.
            at_once = self.load <= 2 and not can_wait()
            loop.call_later(0.0 if at_once else GATHER_SECONDS, self._flush, work.options)
        elif len(queue) == FLUSH_PROGRAMS:
            self._flush(work.options)
        return waiter.future

    def _flush(self, options: BatchOptions) -> None:
        batch = self._queues.pop(options, [])
        if batch:
            task = asyncio.get_running_loop().create_task(self._send(batch, options))
            self._senders.add(task)
            task.add_done_callback(functools.partial(self._sent, batch))

    def _sent(self, batch: list[Waiter], task: asyncio.Task[None]) -> None:
        # Not at the end of `_send`: a task cancelled before its first turn never gets there, and its programs' waiters
        # would hang.
        self._senders.discard(task)
        failure = None if task.cancelled() else task.exception()
        for waiter in batch:
            if not waiter.future.done():
                waiter.future.set_exception(
                    failure or Transient(f"{self.base} ended the answer early", unreachable=True)
                )

    async def _send(self, batch: list[Waiter], options: BatchOptions) -> None:
        try:
            if self.client.is_closed:
                raise Transient(f"the connections to {self.base} were closed", unreachable=True)
            await self._stream(batch, options)
        except httpx.HTTPError as error:
            raise unreachable(self.base, error) from None
        except ForeignLine as error:
            self.foreign += 1
            log.error("%s answered another program: %s", self.base, error)
            raise
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise Transient(f"{self.base} sent an answer that can't be read: {error!r}") from None

    async def _stream(self, batch: list[Waiter], options: BatchOptions) -> None:
        tokens = self.has_tokens
        programs = [{**waiter.program, "token": waiter.token} if tokens else waiter.program for waiter in batch]
        body = {"programs": programs, "ordered": False, **vars(options)}
        if not self.has_coverage:
            body.pop("coverage")  # an older server refuses unknown fields
        _share_cases(body)
        content = json.dumps(body, separators=(",", ":")).encode()
        if len(content) > LARGEST_BODY and len(batch) > 1:
            middle = len(batch) // 2
            await self._stream(batch[:middle], options)
            await self._stream(batch[middle:], options)
            return
        timeout = httpx.Timeout(SILENCE, connect=5.0)
        url = self.base + "/run_batch"
        async with self.client.stream("POST", url, content=content, timeout=timeout) as response:
            if response.status_code != 200:
                text = (await response.aread()).decode("utf-8", "replace")
                require_success(self.base, response.status_code, response.headers, text)
            self.note_alive()
            rest = b""
            async for data in response.aiter_raw():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    if line:
                        _take(json.loads(line), batch, tokens)

    async def aclose(self) -> None:
        """Cancel the requests in flight."""
        for task in list(self._senders):
            task.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)


def _share_cases(body: dict[str, Any]) -> None:
    """Send the cases once when all programs of a batch share them."""
    programs = body["programs"]
    first = programs[0].get("cases")
    if first is not None and len(programs) > 1 and all(program.get("cases") is first for program in programs):
        body["cases"] = first
        body["programs"] = [{key: value for key, value in program.items() if key != "cases"} for program in programs]


def _take(message: dict[str, Any], batch: list[Waiter], tokens: bool) -> None:
    """Give one line of an answer to its program; raises `ForeignLine` if it belongs to none of the batch, or to
    another place in it."""
    index = message["index"]
    if type(index) is not int or not 0 <= index < len(batch):
        raise ForeignLine(f"a line about program {index!r} of {len(batch)}")
    waiter = batch[index]
    if tokens and message.get("token") != waiter.token:
        raise ForeignLine(f"a line with the token of another program than number {index}")
    if waiter.future.done():
        return
    if "results" in message:
        if message.get("first", len(waiter.results)) != len(waiter.results):
            raise ForeignLine(f"results from case {message['first']} on instead of {len(waiter.results)}")
        waiter.results.extend(message["results"])
        if message["done"]:
            waiter.future.set_result(waiter.results)
    elif "refused" in message:
        waiter.future.set_exception(InfrastructureError(message["refused"]))
    else:
        waiter.future.set_exception(Transient(str(message["error"])))
