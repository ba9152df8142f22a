"""Isolation modes on machines that refuse layers: which servers start, which refuse, and what they report."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rewards.sandbox import Sandbox
from rewards.sandbox.isolation.layers import LAYERS
from rewards.sandbox.server.modes import unprotected
from tests.rewards.sandbox.conftest import (
    PYTHONPATH,
    ROOT,
    ServerProcess,
    interpreter_for_anybody,
    locked,
    start_server,
    user_kinds,
)

BARE, ONLY_LANDLOCK, NO_LANDLOCK = ("namespaces", "landlock"), ("namespaces",), ("landlock",)


@contextlib.contextmanager
def serving(refused: tuple[str, ...], mode: str, ordinary_user: bool) -> Iterator[ServerProcess]:
    server = start_server(
        "--isolation", mode, prefix=locked(*refused), ordinary_user=ordinary_user, workers=1, open_python=True
    )
    try:
        yield server
    finally:
        server.stop()


async def outcome_of(server: ServerProcess, code: str) -> str:
    async with Sandbox(server.url) as sandbox:
        result = await sandbox.run(code)
        return result.stdout or result.outcome


ORDINARY = [kind == "ordinary_user" for kind in user_kinds()]


@pytest.mark.slow
@pytest.mark.parametrize("ordinary_user", ORDINARY)
@pytest.mark.parametrize("mode", ["best", "strict"])
def test_a_machine_that_protects_nothing_is_refused(mode: str, ordinary_user: bool) -> None:
    with pytest.raises(RuntimeError) as raised, serving(BARE, mode, ordinary_user):
        pass
    (message,) = [line for line in str(raised.value).splitlines() if line.startswith(f"isolation {mode}:")]
    assert "landlock (the kernel has no Landlock)" in message
    assert "mount_ns (unshare: Operation not permitted)" in message
    if mode == "best":
        assert "files: a program can read what this user can read" in message
        # A user id for each slot, which root can give, protects processes by itself.
        protected = not ordinary_user and os.geteuid() == 0
        assert ("processes: a program can read the environment" in message) is not protected
        assert "--isolation minimal" in message
        assert 'Sandbox(isolation="minimal")' in message
        assert "sandbox.isolation=minimal" in message


PROBE = """
import os
print(os.getuid(), [line.split()[1].strip("0") for line in open("/proc/self/status") if line.startswith("CapEff")])
print([process for process in os.listdir("/proc") if process.isdigit() and int(process) not in (1, os.getpid())])
"""


@pytest.mark.slow
def test_root_of_a_container_that_has_no_other_users_is_protected_as_an_ordinary_user_is() -> None:
    rootless = ["unshare", "--user", "--map-root-user"]
    server = start_server("--isolation", "strict", prefix=rootless, workers=1)
    try:
        (layers,) = [line.partition("active layers: ")[2].split() for line in server.log if "active layers" in line]
        assert set(layers) == set(LAYERS) - {"uid"}
        assert asyncio.run(outcome_of(server, PROBE)) == "1000 ['']\n[]\n"
    finally:
        server.stop()


FORKS = """
from rewards.sandbox.isolation.layers import Isolation
def serve():
    raise PermissionError(13, "Permission denied", "/tmp/sandbox-1")
Isolation(wanted=False, outside_user=0, python=[], quota_mb=1).fork_inside(serve)
"""


@pytest.mark.slow
def test_what_ends_a_fork_server_at_its_start_is_reported() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "PermissionError: [Errno 13] Permission denied: '/tmp/sandbox-1'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("ordinary_user", ORDINARY)
def test_minimal_starts_without_layers_and_reports_the_gaps(ordinary_user: bool, tmp_path: Path) -> None:
    with serving(BARE, "minimal", ordinary_user) as server:
        said = "".join(server.log)
        assert "NOT protected: files: a program can read what this user can read" in said
        assert "NOT protected: disk" in said
        assert "NOT protected: network" not in said
        assert asyncio.run(outcome_of(server, "print(1)")) == "1\n"
        # What is said is so.
        assert asyncio.run(outcome_of(server, "print(len(open('/etc/hostname').read()) >= 0)")) == "True\n"
        assert asyncio.run(outcome_of(server, "import socket; socket.socket()")) == "runtime_error"
        if ordinary_user:
            pid = server.process.pid
            code = f"print('hunter2' in open('/proc/{pid}/environ').read())"
            assert "NOT protected: processes" in said
            assert asyncio.run(outcome_of(server, code)) == "True\n"


@pytest.mark.slow
@pytest.mark.parametrize("ordinary_user", ORDINARY)
@pytest.mark.parametrize("refused", [ONLY_LANDLOCK, NO_LANDLOCK], ids=" ".join)
def test_best_accepts_either_kind_of_protection(refused: tuple[str, ...], ordinary_user: bool, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/") and folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o055)
    with serving(refused, "best", ordinary_user) as server:
        assert not any("NOT protected: files" in line or "NOT protected: processes" in line for line in server.log)
        assert any("going without" in line for line in server.log)
        assert asyncio.run(outcome_of(server, f"print(open({str(secret)!r}).read())")) == "runtime_error"
        pid = server.process.pid
        assert asyncio.run(outcome_of(server, f"print(open('/proc/{pid}/environ').read())")) == "runtime_error"
        assert asyncio.run(outcome_of(server, f"import os; os.kill({pid}, 9)")) == "runtime_error"
        assert server.process.poll() is None


EMBEDDED = """
import asyncio, sys
from rewards.sandbox import InfrastructureError, Sandbox
async def main():
    async with Sandbox(workers=1, isolation=sys.argv[1] or None) as sandbox:
        print((await sandbox.run("print(1)")).outcome)
try:
    asyncio.run(main())
except InfrastructureError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "said"), [("", 'Sandbox(isolation="minimal")'), ("minimal", "passed\n")])
def test_the_embedded_server_has_the_same_requirements(mode: str, said: str, tmp_path: Path) -> None:
    installed = [path for path in sys.path if path.endswith("site-packages")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([PYTHONPATH, *installed]), "TMPDIR": str(tmp_path)}
    python = interpreter_for_anybody() or pytest.fail("no interpreter is open to everybody")
    command = [*locked(*BARE), python, "-c", EMBEDDED, mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert said in done.stdout
    assert done.stderr == ""


WITHOUT_NAMESPACES = {"seccomp", "landlock"}


@pytest.mark.parametrize(
    ("active", "signals_stay_inside", "names"),
    [
        (set(LAYERS), True, []),
        (set(LAYERS) - {"uid", "landlock"}, False, []),
        ({"seccomp"}, False, ["disk", "files", "names of processes", "number of processes", "processes"]),
        ({"seccomp", "uid"}, False, ["disk", "files", "names of processes"]),
        (WITHOUT_NAMESPACES, False, ["disk", "names of processes", "number of processes"]),
        ({"landlock"}, True, ["disk", "kernel", "names of processes", "network", "number of processes"]),
        ({"landlock"}, False, ["disk", "kernel", "names of processes", "network", "number of processes", "signals"]),
    ],
)
def test_the_gaps_follow_from_the_layers(active: set[str], signals_stay_inside: bool, names: list[str]) -> None:
    assert sorted(unprotected(active, signals_stay_inside=signals_stay_inside)) == names
