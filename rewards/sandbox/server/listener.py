"""The server's HTTP front: bounded connections and bounded request bodies.

Connections are limited in number and closed when the client stalls. Bodies are read within limits on size and time,
then validated as FastAPI would.
"""

from __future__ import annotations

import asyncio
import json
import resource
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from uvicorn import Config, Server
from uvicorn.protocols.http.auto import AutoHTTPProtocol

MAX_BODY = 64 << 20
"""Bytes of one body; the client sends a larger batch in parts."""
MAX_HELD = 256 << 20
"""Bytes of all bodies being read or processed."""
BODY_SECONDS, SLOWEST = 30.0, 64 << 10
"""The deadline for a body: `BODY_SECONDS`, plus one second per `SLOWEST` bytes received."""
_MAX_ERRORS, _MAX_TEXT = 20, 300

Model = TypeVar("Model", bound=BaseModel)


class Refused(Exception):
    """A request rejected before processing; carries the response."""

    def __init__(self, status: int, detail: Any, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.response: Response = JSONResponse({"detail": detail}, status_code=status, headers=headers)


class BadRequest(Refused):
    """A body that does not match the route's schema; carries FastAPI's list of errors."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__(422, errors)


class Bodies:
    """The request bodies that a server holds; `held` is their total size in bytes."""

    def __init__(self) -> None:
        self.held = 0

    async def read(self, http: Request) -> bytes:
        """Read the body of a request; `release` frees its share of the budget. Raises `Refused`."""
        declared = _declared_size(http)
        if declared > MAX_BODY:
            raise _too_large()
        chunks: list[bytes] = []
        size = 0
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(started + BODY_SECONDS) as deadline:
                more = True
                while more:
                    message = await http.receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the client disconnected before the end of the body")
                    chunk, more = message.get("body", b""), message.get("more_body", False)
                    size += len(chunk)
                    self.held += len(chunk)
                    chunks.append(chunk)
                    self._require_room(size)
                    deadline.reschedule(started + BODY_SECONDS + size / SLOWEST)
        except BaseException as error:
            self.release(size)
            if isinstance(error, TimeoutError):
                raise Refused(408, "the body arrived too slowly", {"connection": "close"}) from None
            raise
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _require_room(self, size: int) -> None:
        if size > MAX_BODY:
            raise _too_large()
        if self.held > MAX_HELD:
            headers = {"connection": "close", "Retry-After": "1"}
            raise Refused(429, "request bodies use too much memory on this server", headers)

    def release(self, size: int) -> None:
        """Return the bytes of a finished body to the budget."""
        self.held -= size


def _declared_size(http: Request) -> int:
    """The declared content length, 0 if none; raises `BadRequest` for a body that is not JSON."""
    declared = 0
    for name, value in http.scope["headers"]:
        if name == b"content-length":
            declared = int(value) if value.isdigit() and len(value) < 20 else MAX_BODY + 1
        elif name == b"content-type":
            kind = value.partition(b";")[0].strip().lower()
            if kind != b"application/json" and not kind.endswith(b"+json"):
                shown = kind.decode("latin-1")[:_MAX_TEXT]
                message = f"the content type must be application/json, not {shown!r}"
                raise BadRequest([{"type": "content_type", "loc": ["body"], "msg": message}])
    return declared


def _too_large() -> Refused:
    return Refused(413, f"the body is larger than {MAX_BODY} bytes", {"connection": "close"})


def parse(model: type[Model], body: bytes) -> Model:
    """Validate a body as FastAPI would, without its overhead; raises `BadRequest` with FastAPI's error list."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        # Without the input: errors in 10,000 cases would echo the body 10,000 times.
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise BadRequest([_error_entry(item) for item in errors[:_MAX_ERRORS]]) from None
    except RecursionError:
        raise BadRequest([_error_entry({"type": "recursion", "loc": (), "msg": "nested too deeply"})]) from None


def _error_entry(item: Any) -> dict[str, Any]:
    place = [part if isinstance(part, int) else _plain(part) for part in item["loc"]]
    return {"type": item["type"], "loc": ["body", *place], "msg": _plain(item["msg"])}


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode()[:_MAX_TEXT]


def frame_size(message: Any) -> int:
    """Bytes of a message as the JSON sent to a worker."""
    return len(json.dumps(message, separators=(",", ":")))


HEAD_SECONDS = 10.0
"""Seconds that a connection may take to send a request head, from its first byte (a new one: from its start)."""
MAX_HEAD = 64 << 10
STALLED_SECONDS = 60.0
"""Seconds that a response may wait for a client that does not read."""
CLOSING_SECONDS = 5.0
MAX_CONNECTIONS = 4096
_LOOK_SECONDS = 1.0
_Base: Any = AutoHTTPProtocol


class BoundedConnection(_Base):
    """uvicorn's connection with timeouts: plain uvicorn waits forever for the rest of a request head."""

    limit: ClassVar[int] = MAX_CONNECTIONS

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Accept a connection, or refuse it beyond the limit."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._head_bytes = 0
        self._stalled: tuple[int, float] = (0, 0.0)
        self._closing_since = 0.0
        if len(self.connections) > self.limit:
            self._end("503 Service Unavailable")

    def data_received(self, data: bytes) -> None:
        """Forward the data and count the bytes of an unfinished head."""
        super().data_received(data)
        if self._answering():
            self._since = 0.0
            self._head_bytes = 0
            return
        self._since = self._since or self.loop.time()
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD:
            self._end("431 Request Header Fields Too Large")

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _end(self, status: str) -> None:
        if self.transport.is_closing():
            return
        # After a response, incoming data is the rest of an unread body.
        if self.cycle is None:
            self.transport.write(f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode())
        self.transport.close()

    def look(self, now: float) -> None:
        """Close this connection if it has stalled."""
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            if now - self._closing_since > CLOSING_SECONDS:
                self.transport.abort()
        elif self._since and now - self._since > HEAD_SECONDS:
            self._end("408 Request Timeout")
        else:
            self._end_unread(now)

    def _end_unread(self, now: float) -> None:
        waiting = self.transport.get_write_buffer_size()
        if not waiting or waiting != self._stalled[0]:
            self._stalled = (waiting, now)
        elif now - self._stalled[1] > STALLED_SECONDS:
            self.transport.abort()


def uvicorn_server(app: Any, **options: Any) -> Server:
    """A uvicorn server for an ASGI application whose connections are bounded."""
    BoundedConnection.limit = _connection_limit()
    config = Config(app, http=BoundedConnection, ws="none", log_level="warning", access_log=False, **options)
    return Server(config)


def _connection_limit() -> int:
    """How many connections fit in the descriptor limit in addition to the process's own descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS * 2
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(MAX_CONNECTIONS, soft // 2)


async def watch(server: Server) -> None:
    """Check all connections once a second, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        for connection in list(server.server_state.connections):
            if isinstance(connection, BoundedConnection):
                connection.look(loop.time())
