"""A running sandbox server for the tests, and helpers that find anything a program leaves behind."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from rewards.sandbox import Sandbox
from rewards.sandbox.isolation.namespaces import mount_points, python_folders
from rewards.sandbox.server.lanes import spare_slots
from tests.processes import command_line, living_descendants

ROOT = Path(__file__).resolve().parents[3]
PYTHONPATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
NOBODY = 65534
HTTP = httpx.Client(trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))
"""Each request has its own connection, but no request reads the certificates again (25 ms)."""


@dataclass
class ServerProcess:
    """A server in a separate process."""

    process: subprocess.Popen[str]
    url: str = ""
    workers: int = 2
    log: list[str] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """How many workers it has, including those for long programs."""
        return self.workers + spare_slots(self.workers)

    def descendants(self) -> dict[int, str]:
        """Process id and command line of all live descendants of the server."""
        return {child.pid: command_line(child) for child in living_descendants(self.process.pid)}

    def stop(self) -> None:
        """Stop the server and wait for its exit."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def interpreter_for_anybody() -> str | None:
    """An interpreter of this version that a user without rights can start: ours may be below a private folder."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, f"/usr/local/bin/python{version}", f"/usr/bin/python{version}"):
        if shutil.which(path) and _reachable(Path(path).resolve()):
            return path
    return None


def _reachable(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def start_server(
    *arguments: str,
    ordinary_user: bool = False,
    workers: int = 2,
    packages: Path | None = None,
    prefix: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    open_python: bool = False,
) -> ServerProcess:
    """Start `python -m rewards.sandbox serve` and wait until it serves; raises `RuntimeError` with its log when it
    ends. `packages`: a further folder to import from; `prefix`: a command that starts the server's; `variables`: of its
    environment; `open_python`: start it with an interpreter that every user of this machine can start."""
    python = sys.executable
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "SECRET_OF_THE_SERVER": "hunter2", **(variables or {})}
    if ordinary_user:
        prefix = [*prefix, "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if ordinary_user or open_python:
        python = interpreter_for_anybody() or pytest.fail("no interpreter of this version is open to an ordinary user")
        installed = [path for path in sys.path if path.endswith("site-packages")]
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *installed])
    if packages is not None:
        environment["PYTHONPATH"] = f"{packages}{os.pathsep}{environment['PYTHONPATH']}"
    command = [*prefix, python, "-m", "rewards.sandbox", "serve", "--port", "0", "--workers", str(workers), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd="/")
    server = ServerProcess(process, workers=workers)
    assert process.stderr is not None
    for line in process.stderr:
        server.log.append(line)
        found = re.search(r"serving on (http://\S+)", line)
        if found:
            server.url = found.group(1)
            # A full pipe would stop the server in the middle of a test.
            threading.Thread(target=lambda: server.log.extend(process.stderr or []), daemon=True).start()
            return server
    process.wait()
    raise RuntimeError("".join(server.log))


# Starts a command under a filter that refuses these system calls to it and to all that it starts.
_LOCKED = """
import os, sys
from rewards.sandbox.isolation import seccomp, syscalls
refused = {"namespaces": {"unshare": (272, 97)}, "landlock": {"landlock": (444, 444)}}
seccomp._DENIED = {name: call for part in sys.argv[1].split("+") for name, call in refused[part].items()}
for name in ("_SELF_ONLY", "_SIGNALS"): setattr(seccomp, name, ())
seccomp._SOCKET = seccomp._SOCKETPAIR = seccomp._CLONE3 = seccomp._IOCTL = (9999, 9999)
syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
seccomp.install(seccomp.build_filter())
os.execvp(sys.argv[2], sys.argv[2:])
"""


def locked(*refused: str) -> list[str]:
    """A command prefix that makes the kernel refuse `namespaces`, `landlock` or both to the command after it."""
    return [sys.executable, "-c", _LOCKED, "+".join(refused)]


def user_kinds() -> list[str]:
    """Users that run the servers of these tests: this user and, if that is root, an ordinary user as well."""
    return ["this_user", "ordinary_user"] if os.geteuid() == 0 else ["this_user"]


@pytest.fixture(scope="session", params=user_kinds())
def any_server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server on loopback, once with this user's rights and once with an ordinary user's."""
    server = start_server(ordinary_user=request.param == "ordinary_user")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """A server on loopback with this user's rights."""
    server = start_server()
    yield server
    server.stop()


@pytest_asyncio.fixture
async def sandbox(server: ServerProcess) -> AsyncIterator[Sandbox]:
    """A client of `server`."""
    async with Sandbox(server.url) as client:
        yield client


@pytest_asyncio.fixture
async def any_sandbox(any_server: ServerProcess) -> AsyncIterator[Sandbox]:
    """A client of `any_server`."""
    async with Sandbox(any_server.url) as client:
        yield client


LOOK_AROUND = """
import os, time
time.sleep(0.4)  # long enough that every worker is asked
for folder in ("/tmp", "/dev/shm"):
    open(folder + "/probe", "w").close()
    os.unlink(folder + "/probe")
print(sorted(os.listdir("/tmp")), sorted(os.listdir(".")), sorted(os.listdir("/dev/shm")))
print([pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in (1, os.getpid())])
"""


async def assert_nothing_left(server: ServerProcess, sandbox: Sandbox) -> None:
    """The next program in every slot finds an empty folder and no process; the server has its own processes only."""
    looks = await asyncio.gather(*(sandbox.run(LOOK_AROUND) for _ in range(server.slots)))
    # Where the environment stands below /tmp, it is seen there.
    points = {folder: mount_points(folder, python_folders()) for folder in ("/tmp", "/dev/shm")}
    empty = f"{sorted(['run', *points['/tmp']])} ['main.py'] {points['/dev/shm']}\n[]\n"
    assert [look.stdout for look in looks] == [empty] * server.slots
    alive = server.descendants()
    assert len(alive) == 3 * server.slots, alive
