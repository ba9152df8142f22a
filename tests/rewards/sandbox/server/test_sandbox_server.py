"""The server as a process: isolation modes, back-pressure, metrics under load, lifetime of embedded servers."""

# A test may wait for a process.
# ruff: noqa: E501, ASYNC240, ASYNC221

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from rewards.sandbox import CallCase, Program, Sandbox
from rewards.sandbox.client import accounting
from rewards.sandbox.inside.outcomes import KNOWN_GOOD
from rewards.sandbox.isolation import seccomp
from rewards.sandbox.isolation.landlock import supported_version
from rewards.sandbox.isolation.layers import LAYERS
from rewards.sandbox.server import pool as pool_module
from rewards.sandbox.server import slot, wire
from rewards.sandbox.server.pool import Pool
from rewards.sandbox.server.server import run_job
from rewards.sandbox.server.slot import SlotSettings, WorkerFailed
from rewards.sandbox.worker.folders import empty_folder, open_inside
from tests.rewards.sandbox.conftest import HTTP, PYTHONPATH, ROOT, ServerProcess, locked, start_server, user_kinds

# A server of its own for each module, and time limits: these run one after another.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("ordinary_user", [kind == "ordinary_user" for kind in user_kinds()])
@pytest.mark.parametrize("arguments", [("--isolation", "strict"), ("--host", "0.0.0.0")], ids=" ".join)
def test_strict_serves_if_every_layer_is_available(arguments: tuple[str, ...], ordinary_user: bool) -> None:
    token = "the-token-of-this-test"
    server = start_server(*arguments, workers=1, ordinary_user=ordinary_user, variables={"SANDBOX_TOKEN": token})
    try:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        headers = {"Authorization": f"Bearer {token}"}
        answer = HTTP.get(url + "/capabilities", headers=headers).json()
        # A user id for each slot can be given by root only.
        own_ids = set() if ordinary_user or os.geteuid() else {"uid"}
        assert (set(answer["layers"]), answer["missing_layers"]) == (set(LAYERS) - {"uid"} | own_ids, {})
        assert any("active layers" in line for line in server.log)
        assert asyncio.run(_printed(url, token)) == "1\n"
    finally:
        server.stop()


async def _printed(url: str, token: str) -> str:
    async with Sandbox(url, token=token) as sandbox:
        return (await sandbox.run("print(1)")).stdout


@pytest.mark.parametrize("ordinary_user", [kind == "ordinary_user" for kind in user_kinds()])
def test_strict_refuses_to_start_and_best_reports_what_is_missing(ordinary_user: bool) -> None:
    # The kernel refuses every namespace to a process under this filter, as a locked-down machine does.
    def start(mode: str) -> ServerProcess:
        return start_server(
            "--isolation", mode, prefix=locked("namespaces"), ordinary_user=ordinary_user, workers=1, open_python=True
        )

    name = socket.gethostname()
    with pytest.raises(RuntimeError, match=r"this machine lacks .*pid_ns"):
        start("strict")
    best = start("best")
    try:
        missing = [line for line in best.log if "going without" in line]
        assert len(missing) == 1
        assert "net_ns" in missing[0]
        asyncio.run(_poor_machine_still_protects(best.url))
        # What a missing namespace would have kept inside must not happen to the machine instead.
        assert socket.gethostname() == name
    finally:
        best.stop()


async def _poor_machine_still_protects(url: str) -> None:
    async with Sandbox(url) as sandbox:
        assert (await sandbox.run("print(1)")).stdout == "1\n"
        network = await sandbox.run("import socket; socket.socket()")
        assert network.error_type == "PermissionError"
        secret = await sandbox.run(f"print(open({str(Path(__file__))!r}).read())")
        assert secret.outcome == "runtime_error"
        parent = await sandbox.run("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)")
        assert parent.outcome == "runtime_error"
        daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(300)\nprint('left')"
        assert (await sandbox.run(daemon)).stdout == "left\n"
        alive = subprocess.run(["pgrep", "-f", "time.sleep(300)"], capture_output=True, text=True).stdout
        assert alive == ""


async def test_isolation_none_still_limits() -> None:
    server = start_server("--isolation", "none", workers=1)
    try:
        assert any("NONE" in line for line in server.log)
        async with Sandbox(server.url) as sandbox:
            assert (await sandbox.run("print(1)")).stdout == "1\n"
            assert (await sandbox.run("while True: pass", timeout=0.3)).outcome == "timeout"
            assert (await sandbox.run("x = bytearray(1 << 40)")).outcome == "memory"
            child = await sandbox.run(
                "import os, time\nif os.fork() == 0: time.sleep(60)\nprint('parent')", timeout=5.0
            )
            assert child.stdout == "parent\n"
        assert len(server.descendants()) == 3 * server.slots
    finally:
        server.stop()


def test_a_full_queue_is_429_with_retry_after_and_the_client_waits() -> None:
    server = start_server("--queue", "2", workers=1)

    async def crowd() -> tuple[list[int], list[str]]:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http, Sandbox(server.url) as sandbox:
            body = {"code": "import time; time.sleep(0.2)", "language": "python"}
            answers = await asyncio.gather(*(http.post(server.url + "/run_code", json=body) for _ in range(8)))
            assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)
            results = await asyncio.gather(*(sandbox.run("print(1)") for _ in range(6)))
            return [answer.status_code for answer in answers], [result.outcome for result in results]

    try:
        codes, outcomes = asyncio.run(crowd())
        assert codes.count(200) == 3
        assert codes.count(429) == 5
        assert outcomes == ["passed"] * 6
        text = HTTP.get(server.url + "/metrics").text
        assert int(re.search(r"^sandbox_rejected_total (\d+)", text, re.MULTILINE).group(1)) >= 5  # type: ignore[union-attr]
    finally:
        server.stop()


async def never(_: object) -> None:
    """Stands in for a repair."""


@pytest.mark.parametrize("stalled", [1, 2, 3])
async def test_a_stalled_worker_is_replaced_and_its_program_runs_again(
    monkeypatch: pytest.MonkeyPatch, stalled: int
) -> None:
    def request(seconds: float) -> wire.RunCodeRequest:
        limits = {"run_timeout": seconds, "compile_timeout": 0.01}
        return wire.RunCodeRequest.model_validate({"code": "print(1)", "language": "python", **limits})

    # A worker counts as stalled after four times what its job may take and this.
    monkeypatch.setattr(slot, "GRACE", 2.0)
    pool = Pool(2, SlotSettings())
    await pool.start()
    try:
        if stalled == 3:
            # What was replaced stays away, so that the probe of a good program meets a stalled worker as well.
            monkeypatch.setattr(pool, "_restart", never)
            monkeypatch.setattr(pool_module, "KNOWN_GOOD", {**KNOWN_GOOD, "timeout": 0.1, "total_timeout": 0.1})
        for worker in pool.slots[-stalled:]:
            assert worker.process is not None
            os.kill(worker.process.pid, signal.SIGSTOP)
        outcomes = []
        with contextlib.nullcontext() if stalled < 3 else pytest.raises(WorkerFailed, match="stalled"):
            # Where it meets stalled workers only, nothing needs the time.
            async for results, _ in pool.results(run_job(request(1.0 if stalled == 1 else 0.1), 512)):
                outcomes += [(result["outcome"], result["stdout"]) for result in results]
        # Failing twice where a known good program passes is blamed on the program; where that fails as well, on us.
        assert outcomes == {1: [("passed", "1\n")], 2: [("runtime_error", "")], 3: []}[stalled]
        counters = pool.counters
        assert (counters.retried, counters.replaced) == (1, stalled)
        assert (counters.blamed, counters.failed) == (int(stalled == 2), int(stalled == 3))
        if stalled == 3:
            return
        # What was replaced works.
        again = [results async for results, _ in pool.results(run_job(request(1.0), 512))]
        assert again[0][0]["outcome"] == "passed"
    finally:
        pool.close()


USER = """
import asyncio, os, sys, time
from rewards.sandbox import Sandbox
async def main():
    async with Sandbox(workers=1) as sandbox:
        result = await sandbox.run("print(1)")
        print(result.outcome, (await sandbox._servers.connect()).endpoints[0].base, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def start_user(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "TMPDIR": str(folder)}
    return subprocess.Popen([sys.executable, "-c", USER], stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.slow
def test_embedded_server_is_shared_and_stops_with_its_last_user_even_if_killed(tmp_path: Path) -> None:
    users = [start_user(tmp_path) for _ in range(3)]
    try:
        lines = [user.stdout.readline().split() for user in users if user.stdout]
        assert [line[0] for line in lines] == ["passed"] * 3
        assert len({line[1] for line in lines}) == 1
        url = lines[0][1]
        for user in users[:2]:
            user.send_signal(signal.SIGKILL)
            user.wait()
        time.sleep(3)
        assert HTTP.get(url + "/v1/ping").status_code == 200
        pids = {
            int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _mentions(path, str(tmp_path))
        }
        assert pids
        users[2].send_signal(signal.SIGKILL)
        users[2].wait()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in pids):
            time.sleep(0.1)
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        with pytest.raises(httpx.ConnectError):
            HTTP.get(url + "/v1/ping")
    finally:
        for user in users:
            with contextlib.suppress(ProcessLookupError):
                user.kill()


def _mentions(path: Path, text: str) -> bool:
    try:
        return "serve" in (path / "cmdline").read_text() and text in (path / "cmdline").read_text()
    except OSError:
        return False


async def test_a_killed_embedded_server_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with Sandbox(workers=1) as sandbox:
        assert (await sandbox.run("print(1)")).passed
        (pid,) = [
            int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _mentions(path, str(tmp_path))
        ]
        os.kill(pid, signal.SIGKILL)
        assert (await sandbox.run("print(2)")).stdout == "2\n"


def test_importing_the_sandbox_loads_nothing_heavy() -> None:
    code = "import sys, rewards.sandbox; print([m for m in ('torch', 'ray', 'verl', 'numpy', 'fastapi', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_the_filter_has_complete_instructions_and_ends_with_allow() -> None:
    program = seccomp.build_filter()
    assert len(program) % 8 == 0
    assert program[-4:] == (0x7FFF0000).to_bytes(4, sys.byteorder)
    assert len(seccomp.build_filter(own_signals_only=5)) > len(program)


def test_landlock_version_is_known() -> None:
    assert supported_version() >= 0


def test_empty_folder_removes_the_deepest_tree(tmp_path: Path) -> None:
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(600):
            os.mkdir("deep")
            os.chdir("deep")
        Path("file").touch()
        os.symlink("/usr", "link")
    finally:
        os.chdir(here)
    empty_folder(str(tmp_path))
    assert os.listdir(tmp_path) == []
    assert Path("/usr/bin/env").exists()


def test_open_inside_follows_no_link_and_opens_no_device(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("text")
    os.symlink("/etc", tmp_path / "out")
    os.symlink("/etc/passwd", tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    for path, content in [
        ("in/file", b"text"),
        ("./in//file", b"text"),
        ("out/passwd", b""),
        ("link", b""),
        ("pipe", b""),
        ("in", b""),
        ("../x", b""),
    ]:
        descriptor = open_inside(str(tmp_path), path)
        assert os.read(descriptor, 10) == content, path
        os.close(descriptor)


async def test_worker_time_is_counted_without_queueing(sandbox: Sandbox) -> None:
    slow, cases = (
        Program("import time\ntime.sleep(0.1)\ndef f(x): return x"),
        [CallCase("f", [n], expected=n) for n in (1, 2)],
    )
    ends: list[float] = []

    async def one(number: int) -> None:
        await sandbox.check(Program(f"{slow.code}  # {number}"), cases)
        ends.append(time.perf_counter() - start)

    with accounting.counted() as outer:
        with accounting.counted() as busy:
            start = time.perf_counter()
            await asyncio.gather(*(one(number) for number in range(12)))
        await sandbox.run("import time\ntime.sleep(0.1)")
    assert 12 * 0.1 <= busy.seconds < sum(ends)  # of two workers: most of them waited for the others
    assert outer.seconds >= busy.seconds + 0.1
    with accounting.counted() as nothing:
        pass
    assert nothing.seconds == 0.0
