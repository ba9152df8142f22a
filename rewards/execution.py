"""The sandbox that verifiers share: one client per event loop and address, with its pooled connections."""

import asyncio
from collections.abc import Collection
from weakref import WeakKeyDictionary

from rewards.sandbox import Sandbox

# Connections belong to the event loop that opened them.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str | Collection[str] | None, str | None], Sandbox]]
_clients = WeakKeyDictionary()


def sandbox_at(url: str | Collection[str] | None, isolation: str | None = None) -> Sandbox:
    """The running loop's client for this address, or these; None: this machine's embedded server, with this isolation
    mode.
    """
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    key = (url, isolation)
    if key not in clients:
        clients[key] = Sandbox(url if isinstance(url, str | None) else list(url), isolation=isolation)
    return clients[key]
