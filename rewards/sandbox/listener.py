"""Connections of the server: bounded in number, and ended where nothing comes or nobody reads."""

from __future__ import annotations

import asyncio
import resource
from typing import Any, ClassVar

from uvicorn import Config, Server
from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_SECONDS = 10.0
"""How long a connection may take for the head of a request, from its first byte (of a new one: from its start)."""
MAX_HEAD = 64 << 10
STALLED_SECONDS = 60.0
"""How long an answer may wait for a client that reads nothing."""
CLOSING_SECONDS = 5.0
MAX_CONNECTIONS = 4096
_LOOK_SECONDS = 1.0
_Base: Any = AutoHTTPProtocol


class BoundedConnection(_Base):
    """uvicorn's connection, which by itself waits without end for a head that it has begun to read."""

    limit: ClassVar[int] = MAX_CONNECTIONS

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, or refuse it where there are too many."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._head_bytes = 0
        self._stalled: tuple[int, float] = (0, 0.0)
        self._closing_since = 0.0
        if len(self.connections) > self.limit:
            self._end("503 Service Unavailable")

    def data_received(self, data: bytes) -> None:
        """Hand on what came; a head that does not end is counted."""
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
        # Behind an answer, what comes is the rest of a body that nobody asked for.
        if self.cycle is None:
            self.transport.write(f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode())
        self.transport.close()

    def look(self, now: float) -> None:
        """End this connection where it has stalled."""
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
    """As many connections as this process may have open beside its own descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS * 2
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(MAX_CONNECTIONS, soft // 2)


async def watch(server: Server) -> None:
    """Look at all connections once a second, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        for connection in list(server.server_state.connections):
            if isinstance(connection, BoundedConnection):
                connection.look(loop.time())
