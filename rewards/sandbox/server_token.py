"""The secret that a server requires and its clients send."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SHORTEST = 16


def read_token(path: str | None = None, environment: Mapping[str, str] | None = None) -> str | None:
    """The token in the file `path`, in SANDBOX_TOKEN or in the file SANDBOX_TOKEN_FILE; None if none is set.

    Never an argument of a command line: every user of a machine can read those. Raises `OSError` for a file that can't
    be read and `ValueError` for an invalid token.
    """
    # Looked up at each call: `datasets` replaces os.environ when it maps with several processes.
    environment = os.environ if environment is None else environment
    path = path or (environment.get("SANDBOX_TOKEN_FILE") if not environment.get("SANDBOX_TOKEN") else None)
    token = Path(path).read_text().strip() if path else environment.get("SANDBOX_TOKEN", "")
    if not token and path is None:
        return None
    source = path or "SANDBOX_TOKEN"
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"the token of {source} must be printable ASCII without blanks")
    if len(token) < SHORTEST:
        raise ValueError(
            f"the token of {source} has fewer than {SHORTEST} characters; make one with: openssl rand -hex 32"
        )
    return token
