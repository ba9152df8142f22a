"""A server for the processes of this machine: the first user starts it, and it stops after the last one leaves.

Every user of the server holds a connection to a unix socket, its lease. The kernel closes it however the process
exits, so the server knows when no user is left, even after SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import secrets
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

log = logging.getLogger("rewards.sandbox")

START_SECONDS = 90.0
IDLE_SECONDS = 2.0
"""Seconds that an embedded server outlives its last lease, so that a job which restarts its workers keeps it."""


class Leases:
    """The server's side: counts open connections and stops the server when there are none."""

    def __init__(self, path: str, server: Any) -> None:
        self.path = path
        self.server = server
        self.held = 0
        self._seen = False
        self._listener: asyncio.Server | None = None
        self._idle_since = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, state: str, server: Any) -> Leases:
        """Listen on a socket next to the state file and start watching."""
        leases = cls(lease_path(state), server)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(leases.path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(leases.path) as path:
            listener.bind(path)
        leases._listener = await asyncio.start_unix_server(leases._hold, sock=listener)
        leases._tasks.add(asyncio.create_task(leases._watch(state)))
        return leases

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.held += 1
        self._seen = True
        try:
            with contextlib.suppress(OSError):
                await reader.read()
        finally:
            self.held -= 1
            self._idle_since = time.monotonic()
            writer.close()

    async def _watch(self, state: str) -> None:
        while True:
            await asyncio.sleep(0.2)
            patience = IDLE_SECONDS if self._seen else START_SECONDS
            if not self.held and time.monotonic() - self._idle_since > patience:
                log.info("no clients left, stopping")
                with contextlib.suppress(OSError):
                    os.unlink(state)
                self.server.should_exit = True
                return

    def close(self) -> None:
        """Stop watching."""
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def lease_path(state: str) -> str:
    """The lease socket that belongs to a state file."""
    return state.removesuffix(".json") + ".sock"


@contextlib.contextmanager
def short_path(path: str) -> Iterator[str]:
    """An alias of a path, short enough for a unix socket (107 bytes) however deep its folder is."""
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


def write_state(state: str, url: str, token: str | None) -> None:
    """Publish the server's address and token to this user, atomically."""
    temporary = f"{state}.{os.getpid()}"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"url": url, "token": token, "pid": os.getpid()}, file)
    os.replace(temporary, state)


def runtime_folder() -> Path:
    """A folder that only this user can enter; raises `PermissionError` if another user created it first."""
    folder = Path(tempfile.gettempdir()) / f"verl-skillcredit-sandbox-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a private folder of this user")
    return folder


class Address(NamedTuple):
    """A server's URL and its token."""

    url: str
    token: str | None


_leases: dict[str, tuple[socket.socket, Address, int]] = {}
_lock = threading.Lock()


def shared_server(arguments: tuple[str, ...] = ()) -> Address:
    """The address of this machine's embedded server, started if there is none; holds a lease until this process exits.

    Only this user knows its token: another user of the machine reaches the port, but not the server.

    `arguments`: additional arguments of `serve`; callers with equal arguments share a server. Blocks while the server
    starts (a second or two). Raises `RuntimeError` with the server's log if it does not start.
    """
    key = hashlib.sha256("\0".join((sys.executable, __file__, *arguments)).encode()).hexdigest()[:12]
    with _lock:
        held = _leases.get(key)
        # A forked child inherits its parent's connection; it needs its own to be counted.
        if held is not None and held[2] == os.getpid() and _is_open(held[0]):
            return held[1]
        state = str(runtime_folder() / f"{key}.json")
        with _exclusive(state + ".lock"):
            lease, address = _join(state) or _start(state, arguments)
        _leases[key] = (lease, address, os.getpid())
        return address


def _is_open(lease: socket.socket) -> bool:
    try:
        return lease.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@contextlib.contextmanager
def _exclusive(path: str) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _join(state: str) -> tuple[socket.socket, Address] | None:
    """Take a lease of a running server; None if there is none."""
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(lease_path(state)) as path:
            lease.connect(path)
        written = json.loads(Path(state).read_text())
        address = Address(written["url"], written["token"])
        # Between the two steps the server may have decided to stop: it then closes its connections at once.
        lease.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            lease.recv(1)
            lease.close()
            return None
        lease.settimeout(None)
        return lease, address
    except (OSError, ValueError, KeyError):
        lease.close()
        return None


def _start(state: str, arguments: tuple[str, ...]) -> tuple[socket.socket, Address]:
    log_path = state.removesuffix(".json") + ".log"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(state)
    package_root = str(Path(__file__).resolve().parents[3])
    with open(log_path, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "rewards.sandbox", "serve", "--port", "0", "--state", state, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")])),
                # A fresh token, not the one that this process sends to servers given by URL.
                "SANDBOX_TOKEN": secrets.token_hex(32),
            },
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if os.path.exists(state) and (joined := _join(state)):
            # It stops with its leases; the thread reaps it, so that it does not stay a zombie.
            threading.Thread(target=process.wait, daemon=True).start()
            return joined
        time.sleep(0.05)
    ended = process.poll()
    process.kill()
    process.wait()
    why = f"no answer within {START_SECONDS:.0f} s" if ended is None else f"it ended with status {ended}"
    raise RuntimeError("\n".join(filter(None, [why, Path(log_path).read_text(errors="replace")[-2000:].strip()])))
