"""What all `Sandbox` objects of a process share: a bound on programs under way, and the connections of an event
loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import ClassVar

import httpx

from rewards.sandbox.transport import Endpoint

DEFAULT_CONCURRENCY = 256
KEEP_ALIVE = 2.0
"""Seconds that an idle connection is used again: less than servers keep one (5 with uvicorn), so that no request meets
one that is just being closed."""


class ProcessLimit:
    """A bound on programs under way that holds for the whole process, whatever the event loops and `Sandbox`
    objects."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._lock = threading.Lock()
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one of the places."""
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
                # The place passes on without becoming free in between.
                loop.call_soon_threadsafe(self._pass_on, waiter)
                return
            self.used -= 1

    def _pass_on(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done():
            self._give_back()
        else:
            waiter.set_result(None)


process_limit = ProcessLimit(DEFAULT_CONCURRENCY)


Key = tuple[asyncio.AbstractEventLoop, tuple[str, ...], str | None]
"""An event loop, the servers' urls and the token that they ask for."""


class Connections:
    """The connections of one event loop to one set of servers, shared by all `Sandbox` objects that ask for them."""

    _open: ClassVar[dict[Key, Connections]] = {}

    def __init__(self, key: Key) -> None:
        self.key = key
        self.users = 0
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=KEEP_ALIVE)
        # No redirect is followed, so the token goes to these servers only.
        headers = {"Authorization": f"Bearer {key[2]}"} if key[2] else {}
        self.client = httpx.AsyncClient(limits=limits, trust_env=False, headers=headers, follow_redirects=False)
        self.endpoints = [Endpoint(base, self.client) for base in key[1]]

    @classmethod
    def join(cls, urls: tuple[str, ...], token: str | None) -> Connections:
        """The connections of the running loop to these servers, made if need be."""
        key = (asyncio.get_running_loop(), urls, token)
        for stale in [other for other in cls._open if other[0].is_closed()]:
            del cls._open[stale]
        if key not in cls._open:
            cls._open[key] = cls(key)
        found = cls._open[key]
        found.users += 1
        return found

    async def leave(self) -> None:
        """Close everything when the last user leaves."""
        self.users -= 1
        if self.users == 0:
            self._open.pop(self.key, None)
            for endpoint in self.endpoints:
                await endpoint.aclose()
            await self.client.aclose()

    def choose(self) -> Endpoint:
        """The least loaded server that is thought to be alive; if none is, the one whose turn to be tried comes
        first."""
        alive = [endpoint for endpoint in self.endpoints if not endpoint.down_for]
        if alive:
            return min(alive, key=lambda endpoint: endpoint.load)
        return min(self.endpoints, key=lambda endpoint: endpoint.down_for)
