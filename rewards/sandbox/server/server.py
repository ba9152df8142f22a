"""The HTTP front of the sandbox: SandboxFusion's routes and ours, over a pool of workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from rewards.sandbox.cases import OUTPUT_LIMIT
from rewards.sandbox.server import metrics, wire
from rewards.sandbox.server.listener import Bodies, Refused, frame_size, parse
from rewards.sandbox.server.pool import Busy, Pool
from rewards.sandbox.server.slot import WorkerFailed
from rewards.sandbox.worker.languages import available_languages

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

log = logging.getLogger("rewards.sandbox")

HEARTBEAT = 5.0
"""Seconds of silence after which a stream sends an empty line."""
BATCH_SHARE = 4
"""Programs of one batch that run or wait at a time, per slot: other callers get their turn in between."""


def run_job(request: wire.RunCodeRequest, memory_mb: int) -> dict[str, Any]:
    """Convert a `/run_code` request into a job for a worker."""
    return {
        "code": request.code,
        "language": request.language,
        "stdin": request.stdin,
        "files": request.files,
        "fetch": request.fetch_files,
        "timeout": min(max(request.run_timeout, 0.001), wire.MAX_TIMEOUT),
        "compile_timeout": min(max(request.compile_timeout, 0.001), wire.MAX_TIMEOUT),
        "memory_mb": request.memory_limit_MB if request.memory_limit_MB > 0 else memory_mb,
        "output_limit": OUTPUT_LIMIT,
    }


class Service:
    """The handlers of all routes."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.languages = available_languages()
        self.bodies = Bodies()

    def _refusal(self, language: str, files: list[str], fetched: list[str]) -> str | None:
        """The reason why this server can't run a program, or None."""
        if language not in self.languages:
            return f"language {language} is not available on this server, which has {', '.join(self.languages)}"
        path = wire.bad_path([*files, *fetched])
        if path is not None:
            return f"path {path[:100]!r} is not below the working directory, or too long"
        if len(files) > wire.MAX_FILES:
            return f"more than {wire.MAX_FILES} files"
        return None

    async def run_code(self, http: Request) -> Response:
        """`POST /run_code`, as in SandboxFusion: 200 also for programs that fail; our additions are in headers."""
        size = 0
        try:
            body = await self.bodies.read(http)
            size = len(body)
            request = parse(wire.RunCodeRequest, body)
            refusal = self._refusal(request.language, list(request.files), request.fetch_files)
            if refusal:
                return JSONResponse(wire.sandbox_error(refusal))
            job = run_job(request, self.pool.settings.memory_mb)
            if _may_be_too_large(size) and (reason := wire.excess(frame_size(job), 0, [])):
                raise Refused(413, reason)
            return await self._run(job)
        except Refused as refused:
            return refused.response
        finally:
            self.bodies.release(size)

    async def _run(self, job: dict[str, Any]) -> Response:
        self._admit(1)
        try:
            async for results, _ in self.pool.results(job):
                if results:
                    result = results[0]
        except WorkerFailed as error:
            return JSONResponse(wire.sandbox_error(f"infrastructure: {error}"))
        finally:
            self.pool.leave(1)
        return JSONResponse(wire.run_code_response(result, job["fetch"]), headers=_headers(result))

    def _admit(self, programs: int) -> None:
        try:
            self.pool.admit(programs)
        except Busy as busy:
            raise Refused(429, str(busy), {"Retry-After": str(int(busy.retry_after))}) from None

    async def run_batch(self, http: Request) -> Response:
        """`POST /run_batch`: see `wire.BatchRequest`."""
        size = 0
        try:
            body = await self.bodies.read(http)
            size = len(body)
            request = parse(wire.BatchRequest, body)
            count = len(request.programs)
            self._admit(count)
        except Exception as error:
            self.bodies.release(size)
            if isinstance(error, Refused):
                return error.response
            raise

        def release() -> None:
            self.bodies.release(size)
            self.pool.leave(count)

        return _BatchResponse(self._stream(request, _may_be_too_large(size)), release)

    async def _stream(self, request: wire.BatchRequest, large: bool) -> AsyncGenerator[bytes, None]:
        shared = _plain(request.cases)
        # The shared cases are measured once, and only in a large body.
        shared_sizes = _sizes(shared) if large else None
        turn = asyncio.Semaphore(len(self.pool.slots) * BATCH_SHARE)
        count = len(request.programs)
        # One queue in total, or one per program to keep their lines in order; None marks the end of a program.
        queues: list[asyncio.Queue[bytes | None]] = [asyncio.Queue() for _ in range(count if request.ordered else 1)]
        tasks = [
            asyncio.create_task(
                self._batch_program(request, index, (shared, shared_sizes), turn, queues[index % len(queues)])
            )
            for index in range(count)
        ]
        try:
            for ended in range(count):
                queue = queues[ended % len(queues)]
                while (line := await _next_line(queue)) is not None:
                    yield line
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _batch_program(
        self,
        request: wire.BatchRequest,
        index: int,
        shared: tuple[list[dict[str, Any]] | None, list[tuple[bool, int]] | None],
        turn: asyncio.Semaphore,
        lines: asyncio.Queue[bytes | None],
    ) -> None:
        program = request.programs[index]
        refusal = self._refusal(program.language, list(program.files), [])
        cases = _plain(program.cases) or shared[0]
        if cases is not None and program.language != "python" and any("stdin" not in case for case in cases):
            refusal = refusal or f"cases that call functions need python, not {program.language}"
        job = self._batch_job(request, program, cases)
        named = {"index": index} if program.token is None else {"index": index, "token": program.token}
        if shared[1] is not None and not refusal:
            sizes = _sizes(cases) if program.cases else shared[1]
            refusal = wire.excess(frame_size({**job, "cases": None}), frame_size(request.setup), sizes)
        try:
            if refusal:
                lines.put_nowait(_line({**named, "refused": refusal}))
                return
            async with turn:
                first = 0
                async for results, done in self.pool.results(job):
                    lines.put_nowait(_line({**named, "first": first, "results": results, "done": done}))
                    first += len(results)
        except WorkerFailed as error:
            lines.put_nowait(_line({**named, "error": str(error)}))
        except Exception as error:
            log.exception("a batch program failed in the server")
            lines.put_nowait(_line({**named, "error": f"the server failed: {error!r}"}))
        finally:
            lines.put_nowait(None)

    def _batch_job(
        self, request: wire.BatchRequest, program: wire.BatchProgram, cases: list[dict[str, Any]] | None
    ) -> dict[str, Any]:
        job: dict[str, Any] = {
            "code": program.code,
            "language": program.language,
            "stdin": program.stdin,
            "files": program.files,
            "timeout": request.timeout,
            "compile_timeout": request.compile_timeout,
            "memory_mb": request.memory_mb if request.memory_mb > 0 else self.pool.settings.memory_mb,
            "output_limit": request.output_limit,
        }
        if cases is not None:
            job |= {
                "cases": cases,
                "setup": request.setup,
                "max_timeouts": request.max_timeouts,
                "stop_on_failure": request.stop_on_failure,
                "total_timeout": request.total_timeout,
                "entry_points": request.entry_points,
                "coverage": request.coverage,
            }
        return job

    async def capabilities(self, _: Request) -> Response:
        """`GET /capabilities`: this server's additions to SandboxFusion's API."""
        slot = self.pool.slots[0]
        return JSONResponse(
            {
                **wire.CAPABILITIES,
                "workers": self.pool.workers,
                "languages": self.languages,
                "layers": slot.active,
                "missing_layers": slot.missing,
                "max_programs": wire.MAX_PROGRAMS,
                "queue": self.pool.settings.queue,
            }
        )

    async def metrics(self, _: Request) -> Response:
        """`GET /metrics`: Prometheus text."""
        return PlainTextResponse(metrics.render(self.pool), media_type="text/plain; version=0.0.4")

    async def ping(self, _: Request) -> Response:
        """`GET /v1/ping`: "pong" as a JSON string, as in SandboxFusion."""
        return JSONResponse("pong")


def _plain(cases: list[wire.WireCase] | None) -> list[dict[str, Any]] | None:
    return None if cases is None else [case.model_dump(exclude_unset=True) for case in cases]


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


async def _next_line(queue: asyncio.Queue[bytes | None]) -> bytes | None:
    if not queue.empty():
        return queue.get_nowait()
    try:
        return await asyncio.wait_for(queue.get(), HEARTBEAT)
    except TimeoutError:
        return b"\n"


def _may_be_too_large(size: int) -> bool:
    """Whether a body of `size` bytes may hold a job too large for a worker: serialized again, `1e15` and `\u00e9` take
    up to four times as many bytes."""
    return 4 * size > min(wire.MAX_JOB, wire.MAX_VALUES) - 1024


def _sizes(cases: list[dict[str, Any]] | None) -> list[tuple[bool, int]]:
    return [("stdin" in case, frame_size(case)) for case in cases or []]


class _BatchResponse(StreamingResponse):
    """A stream of lines that releases its request's resources however it ends, even before the first line."""

    def __init__(self, lines: AsyncGenerator[bytes, None], release: Callable[[], None]) -> None:
        super().__init__(lines, media_type="application/x-ndjson")
        self._lines = lines
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # A generator that was never started does not run its finally block.
            self._release()
            await self._lines.aclose()


def _headers(result: dict[str, Any]) -> dict[str, str]:
    cut = [name for name in ("stdout", "stderr") if result[f"{name}_truncated"]]
    headers = {wire.OUTCOME_HEADER: result["outcome"]}
    if cut:
        headers[wire.TRUNCATED_HEADER] = ",".join(cut)
    return headers


def build_app(pool: Pool) -> FastAPI:
    """Build the ASGI application over a started pool."""
    service = Service(pool)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        pool.close()

    app = FastAPI(title="verl-skillcredit sandbox", lifespan=lifespan)
    # Plain routes: `parse` validates the bodies at a fraction of the cost of FastAPI's own path.
    app.add_route("/run_code", service.run_code, methods=["POST"])
    app.add_route("/run_batch", service.run_batch, methods=["POST"])
    app.add_route("/capabilities", service.capabilities, methods=["GET"])
    app.add_route("/metrics", service.metrics, methods=["GET"])
    app.add_route("/v1/ping", service.ping, methods=["GET"])
    return app
