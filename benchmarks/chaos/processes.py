"""A run's processes and what it leaves on the machine: processes, ports, temporary files, shared memory."""

import contextlib
import glob
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import psutil

from recipe.runtime.left_weights import unused

MARK = "SKILLCREDIT_CHAOS"
"""Environment variable whose value is that of the start that a process belongs to, and of no other."""
LATE = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Agents of Ray that notice the end of a killed run only after minutes: ended without being counted as left."""
SECONDS = 60.0
"""In which all others must have ended."""
_SHARED_MEMORY = re.compile(r"/dev/shm/\S+")


class RunProcesses:
    """The processes of a run: those with its mark in their environment, and whatever its command has started.

    The second also finds programs whose environment was emptied. mark: the value of MARK. command: process id of the
    start. mapped: files in shared memory that they had mapped when looked at.
    """

    def __init__(self, mark: str, command: int):
        self._mark, self._command = mark, psutil.Process(command)
        self._seen: set[psutil.Process] = {self._command}
        self.mapped: set[str] = set()

    def alive(self) -> list[psutil.Process]:
        """Those that live now, with all that were seen before; the oldest first."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._seen.update(self._command.children(recursive=True))
        self._seen.update(one for one in psutil.process_iter() if self._is_marked(one))
        living = sorted(filter(is_alive, self._seen), key=lambda one: (one.create_time(), one.pid))
        for one in living:
            with contextlib.suppress(OSError):
                self.mapped.update(_SHARED_MEMORY.findall(Path(f"/proc/{one.pid}/maps").read_text(errors="replace")))
        return living

    def named(self, part: str) -> list[psutil.Process]:
        """Living ones whose name starts with, or whose command line has, this part."""
        return [one for one in self.alive() if _is_named(one, part)]

    def _is_marked(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return bool(process.environ().get(MARK) == self._mark)
        return False


def is_alive(process: psutil.Process) -> bool:
    """Whether this very process is alive; one that waits for its parent to read its status does not."""
    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _is_named(process: psutil.Process, part: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.name().startswith(part) or part in " ".join(process.cmdline())
    return False


def kill(process: psutil.Process, seconds: float = 10.0) -> bool:
    """Send SIGKILL; whether it was alive before, and is gone within `seconds`."""
    if not is_alive(process):
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
    deadline = time.monotonic() + seconds
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_alive(process)


def left_running(run: RunProcesses, seconds: float = SECONDS) -> list[str]:
    """Processes that outlive the run by `seconds`, with the ports that they hold; all are killed."""
    deadline = time.monotonic() + seconds
    while (alive := [one for one in run.alive() if _name(one) not in LATE]) and time.monotonic() < deadline:
        time.sleep(0.5)
    found = [f"{_name(one)} ({one.pid}){''.join(f' on port {port}' for port in _ports(one))}" for one in alive]
    for process in run.alive():
        kill(process)
    return found


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return str(process.name())
    return "a process"


def _ports(process: psutil.Process) -> list[int]:
    with contextlib.suppress(psutil.Error):
        found = process.net_connections(kind="inet")
        return sorted({one.laddr.port for one in found if one.status == psutil.CONN_LISTEN})
    return []


class Scratch:
    """A folder for a run's temporary files, removed in the end, and a look at the places that all runs share.

    Its path is short: Ray's sockets lie in it, and the path of a socket has 107 bytes.
    """

    def __init__(self, shared: Sequence[str] = ("/dev/shm/*", "/tmp/rl-colocate-zmq-*")):
        self.path = Path(tempfile.mkdtemp(prefix="chaos.", dir="/tmp"))
        self._shared = shared
        self._before = self._now()

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def names(self) -> list[str]:
        """What is in the folder."""
        return sorted(one.name for one in self.path.iterdir())

    def elsewhere(self, mapped: Collection[str]) -> list[str]:
        """The run's paths that are new in the shared places and that no living process maps or listens at.

        mapped: shared memory of the run's processes; other programs leave theirs beside it.
        """
        new = {path for path in self._now() - self._before if path in mapped or not path.startswith("/dev/shm/")}
        return unused(new)

    def _now(self) -> set[str]:
        return {path for pattern in self._shared for path in glob.glob(pattern)}
