"""The sandbox that verifiers share: one client per event loop and address, with its pooled connections."""

import asyncio
from weakref import WeakKeyDictionary

from rewards.sandbox import Sandbox

# Connections belong to the event loop that opened them.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str | None, Sandbox]] = WeakKeyDictionary()


def sandbox_at(url: str | None) -> Sandbox:
    """The running loop's client for this address; None: the server embedded in this process."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if url not in clients:
        clients[url] = Sandbox(url)
    return clients[url]
