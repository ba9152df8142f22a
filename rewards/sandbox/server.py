"""The HTTP front of the sandbox: SandboxFusion's routes and ours, over a pool of workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from fastapi import FastAPI
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from rewards.sandbox import metrics, protocol
from rewards.sandbox.languages import available_languages
from rewards.sandbox.pool import Busy, Pool
from rewards.sandbox.slot import SlotFailed

log = logging.getLogger("rewards.sandbox")

HEARTBEAT = 5.0
"""Seconds of silence after which a stream carries an empty line."""
BATCH_SHARE = 4
"""Programs of one batch that wait for a slot at a time, per slot: other callers get their turn in between."""
MAX_BODY = 256 << 20

Model = TypeVar("Model", bound=BaseModel)


class BadRequest(Exception):
    """A body that is not what the route asks for; carries FastAPI's list of errors."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__("bad request")
        self.response = JSONResponse({"detail": errors}, status_code=422)


def parse(model: type[Model], body: bytes) -> Model:
    """Validate a body as FastAPI would, without its detour; raises `BadRequest` with FastAPI's answer."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        errors = json.loads(error.json(include_url=False), parse_constant=str)
        raise BadRequest([{**item, "loc": ["body", *item["loc"]]} for item in errors]) from None


def run_job(request: protocol.RunCodeRequest, memory_mb: int) -> dict[str, Any]:
    """A `/run_code` request as a job of a worker."""
    return {
        "code": request.code,
        "language": request.language,
        "stdin": request.stdin,
        "files": request.files,
        "fetch": request.fetch_files,
        "timeout": min(max(request.run_timeout, 0.001), protocol.MAX_TIMEOUT),
        "compile_timeout": min(max(request.compile_timeout, 0.001), protocol.MAX_TIMEOUT),
        "memory_mb": request.memory_limit_MB if request.memory_limit_MB > 0 else memory_mb,
        "output_limit": 1 << 20,
    }


class Service:
    """The handlers of all routes."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.languages = available_languages()
        self.requests = 0

    def _refusal(self, language: str, files: list[str], fetched: list[str]) -> str | None:
        """Why a program can't be run here, if it can't."""
        if language not in self.languages:
            return f"language {language} is not available on this server, which has {', '.join(self.languages)}"
        path = protocol.bad_path([*files, *fetched])
        if path is not None:
            return f"path {path!r} is not below the working directory"
        if len(files) > protocol.MAX_FILES or len(fetched) > protocol.MAX_FILES:
            return f"more than {protocol.MAX_FILES} files"
        return None

    async def run_code(self, http: Request) -> Response:
        """`POST /run_code`, as SandboxFusion: 200 also for programs that fail; what is ours is said in headers."""
        try:
            request = parse(protocol.RunCodeRequest, await http.body())
        except BadRequest as bad:
            return bad.response
        refusal = self._refusal(request.language, list(request.files), request.fetch_files)
        if refusal:
            return JSONResponse(protocol.sandbox_error(refusal))
        try:
            self.pool.admit(1)
        except Busy as busy:
            return _busy(busy)
        try:
            async for results, _ in self.pool.results(run_job(request, self.pool.settings.memory_mb)):
                if results:
                    result = results[0]
        except SlotFailed as error:
            return JSONResponse(protocol.sandbox_error(f"infrastructure: {error}"))
        finally:
            self.pool.leave(1)
        return JSONResponse(protocol.run_code_response(result, request.fetch_files), headers=_headers(result))

    async def run_batch(self, http: Request) -> Response:
        """`POST /run_batch`: see `protocol.BatchRequest`."""
        try:
            request = parse(protocol.BatchRequest, await http.body())
        except BadRequest as bad:
            return bad.response
        try:
            self.pool.admit(len(request.programs))
        except Busy as busy:
            return _busy(busy)
        return StreamingResponse(self._stream(request), media_type="application/x-ndjson")

    async def _stream(self, request: protocol.BatchRequest) -> AsyncIterator[bytes]:
        shared = _plain(request.cases)
        turn = asyncio.Semaphore(len(self.pool.slots) * BATCH_SHARE)
        count = len(request.programs)
        # One queue in all, or one for each program so that their lines come in order; each program ends with a None.
        queues: list[asyncio.Queue[bytes | None]] = [asyncio.Queue() for _ in range(count if request.ordered else 1)]
        tasks = [
            asyncio.create_task(self._batch_program(request, index, shared, turn, queues[index % len(queues)]))
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
            self.pool.leave(len(tasks))

    async def _batch_program(
        self,
        request: protocol.BatchRequest,
        index: int,
        shared: list[dict[str, Any]] | None,
        turn: asyncio.Semaphore,
        lines: asyncio.Queue[bytes | None],
    ) -> None:
        program = request.programs[index]
        refusal = self._refusal(program.language, list(program.files), [])
        cases = _plain(program.cases) or shared
        if cases is not None and program.language != "python" and any("stdin" not in case for case in cases):
            refusal = refusal or f"cases that call functions need python, not {program.language}"
        try:
            if refusal:
                lines.put_nowait(_line({"index": index, "refused": refusal}))
                return
            async with turn:
                first = 0
                async for results, done in self.pool.results(self._batch_job(request, program, cases)):
                    lines.put_nowait(_line({"index": index, "first": first, "results": results, "done": done}))
                    first += len(results)
        except SlotFailed as error:
            lines.put_nowait(_line({"index": index, "error": str(error)}))
        except Exception as error:
            log.exception("a batch program failed in the server")
            lines.put_nowait(_line({"index": index, "error": f"the server failed: {error!r}"}))
        finally:
            lines.put_nowait(None)

    def _batch_job(
        self, request: protocol.BatchRequest, program: protocol.BatchProgram, cases: list[dict[str, Any]] | None
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
            }
        return job

    async def capabilities(self, _: Request) -> Response:
        """`GET /capabilities`: what this server offers beside SandboxFusion's protocol."""
        slot = self.pool.slots[0]
        return JSONResponse(
            {
                **protocol.CAPABILITIES,
                "workers": len(self.pool.slots),
                "languages": self.languages,
                "layers": slot.active,
                "missing_layers": slot.missing,
                "max_programs": protocol.MAX_PROGRAMS,
                "queue": self.pool.settings.queue,
            }
        )

    async def metrics(self, _: Request) -> Response:
        """`GET /metrics`: Prometheus text."""
        return PlainTextResponse(metrics.render(self.pool), media_type="text/plain; version=0.0.4")

    async def ping(self, _: Request) -> Response:
        """`GET /v1/ping`: "pong", as JSON text, as SandboxFusion."""
        return JSONResponse("pong")


def _plain(cases: list[protocol.Case] | None) -> list[dict[str, Any]] | None:
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


def _busy(busy: Busy) -> Response:
    headers = {"Retry-After": str(int(busy.retry_after))}
    return JSONResponse({"detail": str(busy)}, status_code=429, headers=headers)


def _headers(result: dict[str, Any]) -> dict[str, str]:
    cut = [name for name in ("stdout", "stderr") if result[f"{name}_truncated"]]
    headers = {protocol.OUTCOME_HEADER: result["outcome"]}
    if cut:
        headers[protocol.TRUNCATED_HEADER] = ",".join(cut)
    return headers


def build_app(pool: Pool) -> FastAPI:
    """The ASGI application over a pool that has been started."""
    service = Service(pool)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        pool.close()

    app = FastAPI(title="verl-skillcredit sandbox", lifespan=lifespan)
    # Plain routes: the bodies are validated in `parse`, at a fraction of what FastAPI's own path costs a request.
    app.add_route("/run_code", service.run_code, methods=["POST"])
    app.add_route("/run_batch", service.run_batch, methods=["POST"])
    app.add_route("/capabilities", service.capabilities, methods=["GET"])
    app.add_route("/metrics", service.metrics, methods=["GET"])
    app.add_route("/v1/ping", service.ping, methods=["GET"])
    return app
