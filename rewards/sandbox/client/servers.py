"""Choosing servers and retrying: the process-wide limit, the shared connections and the retry loop of `Sandbox`.

`ProcessLimit` bounds the programs in flight in this process. `Connections` are shared by all `Sandbox` objects of an
event loop. `Servers` connects on first use and retries a failed program, on another server if there is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import cache
from typing import ClassVar, TypeVar

import httpx
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from rewards.sandbox.cases import InfrastructureError
from rewards.sandbox.client.embedded import Address, shared_server
from rewards.sandbox.client.transport import Endpoint, Transient

DEFAULT_CONCURRENCY = 256
KEEP_ALIVE = 2.0
"""Seconds that an idle connection stays reusable: less than the servers' keep-alive (5 with uvicorn), so that no
request hits a connection that is being closed."""


class ProcessLimit:
    """Bounds the programs in flight in the whole process, across event loops and `Sandbox` objects."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._lock = threading.Lock()
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one slot for the duration of the context."""
        with self._lock:
            free = self.used < self.limit and not self._waiting
            if free:
                self.used += 1
            else:
                loop = asyncio.get_running_loop()
                waiter: asyncio.Future[None] = loop.create_future()
                self._waiting.append((loop, waiter))
        if not free:
            await self._wait(waiter)
        try:
            yield
        finally:
            self._give_back()

    async def _wait(self, waiter: asyncio.Future[None]) -> None:
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._give_back()
            raise

    def _give_back(self) -> None:
        with self._lock:
            while self._waiting:
                loop, waiter = self._waiting.popleft()
                if loop.is_closed():
                    continue
                # The slot is handed over directly: it never counts as free in between.
                loop.call_soon_threadsafe(self._pass_on, waiter)
                return
            self.used -= 1

    def _pass_on(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done():
            self._give_back()
        else:
            waiter.set_result(None)


process_limit = ProcessLimit(DEFAULT_CONCURRENCY)


ConnectionKey = tuple[asyncio.AbstractEventLoop, tuple[str, ...], str | None]
"""An event loop, the servers' URLs and their token."""


@cache
def _certificates() -> ssl.SSLContext:
    """The authorities that TLS trusts: to read them takes 25 ms, for every event loop without this cache."""
    return httpx.create_ssl_context(trust_env=False)


class Connections:
    """The connections of one event loop to one set of servers, shared by all `Sandbox` objects that use them."""

    _open: ClassVar[dict[ConnectionKey, Connections]] = {}

    def __init__(self, key: ConnectionKey) -> None:
        self.key = key
        self.users = 0
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=KEEP_ALIVE)
        # No redirect is followed, so the token goes to these servers only.
        headers = {"Authorization": f"Bearer {key[2]}"} if key[2] else {}
        self.client = httpx.AsyncClient(
            limits=limits, trust_env=False, headers=headers, follow_redirects=False, verify=_certificates()
        )
        self.endpoints = [Endpoint(base, self.client) for base in key[1]]

    @classmethod
    def join(cls, urls: tuple[str, ...], token: str | None) -> Connections:
        """The running loop's connections to these servers, created if needed."""
        key = (asyncio.get_running_loop(), urls, token)
        for stale in [other for other in cls._open if other[0].is_closed()]:
            del cls._open[stale]
        if key not in cls._open:
            cls._open[key] = cls(key)
        connections = cls._open[key]
        connections.users += 1
        return connections

    async def leave(self) -> None:
        """Close everything when the last user leaves."""
        self.users -= 1
        if self.users == 0:
            self._open.pop(self.key, None)
            for endpoint in self.endpoints:
                await endpoint.aclose()
            await self.client.aclose()

    def choose(self) -> Endpoint:
        """The least loaded server believed alive; if none is, the one due to be retried first."""
        alive = [endpoint for endpoint in self.endpoints if not endpoint.down_for]
        if alive:
            return min(alive, key=lambda endpoint: endpoint.load)
        return min(self.endpoints, key=lambda endpoint: endpoint.down_for)


FIRST_DELAY = 0.1
_BACK_OFF = wait_exponential_jitter(multiplier=0.1, max=5.0, jitter=0.2)

Result = TypeVar("Result")
AttemptAt = Callable[[Endpoint], Awaitable[Result]]


class Servers:
    """The servers of a `Sandbox`: connects on first use and retries when they fail.

    `urls`: the servers, with or without `/run_code`; if empty, this machine's embedded server, started with the
    arguments `embedded`. `token`: the servers' token, sent to them only. `attempts`: tries per program when servers
    fail. `queue_timeout`: seconds to wait for busy servers (429).
    """

    def __init__(
        self,
        urls: Sequence[str],
        embedded: tuple[str, ...],
        *,
        attempts: int,
        queue_timeout: float,
        token: str | None = None,
    ) -> None:
        if attempts < 1:
            raise ValueError("attempts must be at least 1")
        self._urls = tuple(dict.fromkeys(_base(text) for text in urls))
        self._embedded = None if self._urls else embedded
        self._token = token
        self._attempts = attempts
        self._queue_timeout = queue_timeout
        self._connections: Connections | None = None
        self._joining: asyncio.Lock | None = None

    async def close(self) -> None:
        """Release the connections."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.leave()

    async def connect(self) -> Connections:
        """The connections, opened on first use; raises `InfrastructureError`."""
        if self._connections is None:
            self._joining = self._joining or asyncio.Lock()
            async with self._joining:
                if self._connections is None:
                    if self._embedded is None:
                        self._connections = Connections.join(self._urls, self._token)
                    else:
                        url, token = await asyncio.to_thread(self._start_embedded)
                        self._connections = Connections.join((url,), token)
        return self._connections

    def _start_embedded(self) -> Address:
        try:
            return shared_server(self._embedded or ())
        except (OSError, RuntimeError) as error:
            raise InfrastructureError(f"the embedded sandbox did not start: {error}") from None

    async def retried(self, attempt_at: AttemptAt[Result]) -> Result:
        """Retry until an attempt returns a result; `attempt_at(endpoint)` raises `Transient` where a retry may help.

        Raises `InfrastructureError` when every attempt failed.
        """
        busy_until = time.monotonic() + self._queue_timeout
        async with process_limit.slot():
            try:
                # Nearly all programs need one attempt: build the retry machinery only for the others.
                return await self._attempt(attempt_at, busy_until)
            except Transient as error:
                if self._attempts == 1:
                    raise InfrastructureError(str(error)) from None
            retrying = AsyncRetrying(
                sleep=asyncio.sleep,
                stop=stop_after_attempt(self._attempts - 1),
                wait=_BACK_OFF,
                retry=retry_if_exception_type(Transient),
                reraise=True,
            )
            await asyncio.sleep(FIRST_DELAY)
            try:
                return await retrying(self._attempt, attempt_at, busy_until)
            except Transient as error:
                raise InfrastructureError(f"{error} (after {self._attempts} attempts)") from None

    async def _attempt(self, attempt_at: AttemptAt[Result], busy_until: float) -> Result:
        while True:
            connections = await self.connect()
            endpoint = connections.choose()
            endpoint.under_way += 1
            try:
                await endpoint.discover()
                return await attempt_at(endpoint)
            except Transient as error:
                if error.unreachable:
                    endpoint.note_unreachable()
                    await self._after_loss(connections)
                # A busy server is not a failing one: waiting in line costs no attempt.
                if error.retry_after is None or time.monotonic() + error.retry_after > busy_until:
                    raise
                await asyncio.sleep(error.retry_after)
            finally:
                endpoint.under_way -= 1

    async def _after_loss(self, connections: Connections) -> None:
        # A dead embedded server is restarted at a new address. A live one lost a single connection: keep what is in
        # flight on the others.
        if self._embedded is not None and self._connections is connections:
            url, token = await asyncio.to_thread(self._start_embedded)
            if connections.key[1:] != ((url,), token) and self._connections is connections:
                await self.close()


def _base(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"a sandbox URL must begin with http:// or https://, not {url!r}")
    return url.rstrip("/").removesuffix("/run_code").rstrip("/")
