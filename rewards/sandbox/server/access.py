"""Access control: the server's token, its allowed host names, and no cross-origin pages."""

from __future__ import annotations

import hmac
import ipaddress
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS = ("/v1/ping",)
"""Routes that need no token: a load balancer's probe sends none, and "pong" reveals nothing."""
_REMEMBERED = 64


class Guard:
    """ASGI middleware that rejects requests which may not reach the application.

    401: a missing or wrong token. 403: a foreign Host (a name made to resolve to this machine: DNS rebinding) or a
    foreign Origin (a page in a browser). `host`: the address that the server listens on; on a wildcard address every
    Host is accepted, and the token decides.
    """

    def __init__(self, app: ASGIApp, host: str, token: str | None) -> None:
        self.app = app
        self._host = _plain_name(host)
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._known: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request or reject it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        hosts, origins, given = [], [], b""
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origins.append(value)
            elif name == b"authorization":
                given = value
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return _refused(403, "the Host header does not name this server")
        if any(origin.lower().partition(b"://")[2] != hosts[0].lower() for origin in origins):
            return _refused(403, "requests from pages of another origin are refused (Origin)")
        if self._expected is None or scope["path"] in OPEN_PATHS or hmac.compare_digest(given, self._expected):
            return None
        return _refused(401, "this server requires its token: Authorization: Bearer ...")

    def _is_own(self, host: bytes) -> bool:
        if host in self._known:
            return True
        name = _plain_name(host.decode("latin-1"))
        is_own = is_loopback(name) or name == self._host or is_wildcard(self._host)
        if is_own and len(self._known) < _REMEMBERED:
            self._known.add(host)
        return is_own


def _refused(status: int, detail: str) -> JSONResponse:
    # Close the connection, because the body is not read.
    headers = {"connection": "close"} | ({"www-authenticate": "Bearer"} if status == 401 else {})
    return JSONResponse({"detail": detail}, status_code=status, headers=headers)


def _plain_name(host: str) -> str:
    """A host in lower case without port, brackets and trailing dot."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() and ":" not in name else host).removesuffix(".")


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether this address means all addresses of the machine."""
    try:
        return ipaddress.ip_address(host or "0.0.0.0").is_unspecified
    except ValueError:
        return False
