"""Ray's workers are forked from a process with their imports, and cannot be told from workers that started as usual."""

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from recipe.runtime import fork_server

pytestmark = pytest.mark.slow

WORKER = """
import sys
imported = sorted({"numpy", "ray", "wave"} & set(sys.modules))
package = getattr(sys.modules.get("recipe"), "__file__", None)
import json, os, pathlib, random, numpy
told = {
    "pid": os.getpid(), "group": os.getpgid(0), "parent": os.getppid(), "imported": imported,
    "words": sys.argv, "folder": os.getcwd(),
    "environment": dict(os.environ), "package": package, "paths": sys.path, "main": sys.modules["__main__"].__file__,
    "drawn": [random.random(), numpy.random.random(), int.from_bytes(os.urandom(4), "big")],
}
print(json.dumps(told), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def node() -> Iterator[subprocess.Popen[bytes]]:
    """Stands in for Ray's raylet: servers end with it."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def start(node: subprocess.Popen[bytes], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a worker by a command of Ray's: the run's `py_executable`, then the worker's program and arguments."""
    program, started = tmp_path / "worker.py", []
    program.write_text(WORKER)

    def worker(command: str, *words: str, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*shlex.split(command), str(program), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "RAY_RAYLET_PID": str(node.pid), **variables}, cwd=tmp_path,
        )  # fmt: skip
        started.append(process)
        return process

    yield worker
    for process in started:
        process.kill()
        process.communicate()


def told(worker: subprocess.Popen[str]) -> dict[str, Any]:
    assert worker.stdout is not None
    found: dict[str, Any] = json.loads(worker.stdout.readline())
    return found


def command(*modules: str) -> str:
    return fork_server.executable(sys.executable, modules)


def test_workers_are_forked_from_one_process_and_are_like_others(start, tmp_path: Path):
    own = command("numpy", "wave")
    first = start(own, "a b", RANK="0")
    server = told(first)["parent"]
    assert server == first.pid  # its command became the server
    second = start(own, "--flag", RANK="1")
    usual = start(sys.executable, "--flag", RANK="1")
    forked, plain = told(second), told(usual)
    assert (forked["parent"], forked["imported"], plain["imported"]) == (server, ["numpy", "wave"], [])
    assert forked["pid"] not in (server, second.pid)
    for same in ("words", "folder", "environment", "paths", "main"):
        assert forked[same] == plain[same]
    assert forked["words"][1:] == ["--flag"]
    assert forked["group"] == forked["pid"]  # Ray ends the group of a worker that died
    assert forked["environment"]["RANK"] == "1"


def test_a_command_ends_with_its_worker(start):
    own = command("wave")
    first, second = start(own), start(own)
    workers = [told(first), told(second)]
    (other,) = (one for one, worker in zip((first, second), workers, strict=True) if worker["parent"] != one.pid)
    other.communicate("", timeout=20)
    assert other.returncode == 0
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(workers[(first, second).index(other)]["pid"]).wait(timeout=20)


def test_workers_draw_different_random_numbers(start):
    own = command("numpy", "random")
    draws = [told(start(own))["drawn"] for _ in range(3)]
    assert all(len(set(numbers)) == 3 for numbers in zip(*draws, strict=True))


def test_a_worker_with_a_variable_that_imports_read_starts_as_usual(start):
    own = command("wave")
    server = told(start(own, OMP_NUM_THREADS="1"))["parent"]
    other = start(own, OMP_NUM_THREADS="2")
    found = told(other)
    assert found["pid"] == other.pid
    assert found["parent"] != server
    assert (found["imported"], found["environment"]["OMP_NUM_THREADS"]) == ([], "2")


def test_what_an_import_does_to_the_environment_reaches_no_worker(start, tmp_path: Path):
    (tmp_path / "changes_environment.py").write_text("import os; os.environ['CHANGED'] = 'yes'")
    own = command("changes_environment")
    for _ in range(2):
        found = told(start(own, PYTHONPATH=str(tmp_path)))
        assert "CHANGED" not in found["environment"]


def test_a_failing_import_is_reported_and_left_to_the_worker(start, capfd):
    own = command("wave", "no_such_module")
    first, second = start(own), start(own)
    for worker in (first, second):
        assert told(worker)["pid"] == worker.pid
    assert "workers are not forked: ModuleNotFoundError: No module named 'no_such_module'" in capfd.readouterr().err


def test_packages_are_those_of_the_drivers_checkout(start, tmp_path: Path):
    other = tmp_path / "other" / "recipe"
    (other / "runtime").mkdir(parents=True)
    (other / "__init__.py").touch()
    copied = shutil.copy(fork_server.__file__, other / "runtime")
    own = command("recipe").replace(fork_server.__file__, str(copied))
    assert told(start(own))["package"] == str(other / "__init__.py")


def test_the_server_ends_with_the_node(start, node: subprocess.Popen[bytes]):
    first = start(command("wave"))
    worker = psutil.Process(told(first)["pid"])
    node.kill()
    assert first.wait(timeout=20) == 0
    assert worker.is_running()  # Ray ends it


def test_servers_of_two_runs_do_not_know_each_other(start):
    assert told(start(command("wave")))["parent"] != told(start(command("wave")))["parent"]


@pytest.fixture
def as_nobody() -> Callable[[], contextlib.AbstractContextManager[None]]:
    if os.getuid() != 0:
        pytest.skip("becomes another user")

    @contextlib.contextmanager
    def become() -> Iterator[None]:
        os.seteuid(65534)
        yield
        os.seteuid(0)

    return become


def address(command: str) -> str:
    return f"\0verl-skillcredit-{shlex.split(command)[5]}"


def test_another_user_is_not_served(start, as_nobody):
    own = command("wave")
    first = told(start(own))
    with socket.socket(socket.AF_UNIX) as other:
        with as_nobody():
            other.connect(address(own))
        # The server may close before the request is sent, or with it unread.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            asked = {name: first[name] for name in ("words", "environment", "folder")}
            fork_server._send(other, asked)
            assert other.recv(1) == b""


def test_another_users_server_gets_nothing(start, as_nobody):
    own = command("wave")
    with socket.socket(socket.AF_UNIX) as other:
        with as_nobody():
            other.bind(address(own))
            other.listen()
        worker = start(own)
        assert told(worker)["pid"] == worker.pid
        connection, _ = other.accept()
        assert connection.recv(1) == b""
