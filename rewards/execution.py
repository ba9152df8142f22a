"""The sandbox that verifiers share: one client per process and address, with its pooled connections."""

from functools import cache

try:
    from rewards.sandbox import Sandbox
except ImportError:
    from rewards._standin import Sandbox  # type: ignore[assignment]


@cache
def sandbox_at(url: str | None) -> Sandbox:
    """The client for this address; None: the server embedded in this process."""
    return Sandbox(url)
