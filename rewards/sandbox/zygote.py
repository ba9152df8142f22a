"""The fork server of one slot: forks a child for each program and leaves nothing of it behind.

It only ever receives limits and descriptors. Code, input and tests go straight to the child, so that no later child can
find them in memory that it inherits.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import stat
import sys
from typing import Any, NoReturn

from rewards.sandbox import judge, program, syscalls
from rewards.sandbox.codec import receive_frame, send_frame
from rewards.sandbox.isolation import Isolation, Limits

PRELOADED = ["abc", "array", "ast", "base64", "binascii", "bisect", "calendar", "cmath", "collections", "collections.abc", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "gc", "hashlib", "heapq", "inspect", "io", "itertools", "json", "keyword", "linecache", "math", "numbers", "operator", "os", "queue", "random", "re", "statistics", "string", "struct", "sys", "textwrap", "threading", "time", "traceback", "types", "typing", "unicodedata", "uuid"]
_TICK_MS = 20
MESSAGE_LIMIT = 4096
START, KILL, WAITED, CLEAN = b"start", b"kill", b"waited", b"clean"
READY = {"ready": True}
_CONTROL, _CALLS, _LAST_OWN = 30, 31, 100


def preload() -> None:
    """Import and touch what programs use, then freeze it: a child starts with everything warm and copies little."""
    for name in PRELOADED:
        importlib.import_module(name)
    namespace: dict[str, Any] = {}
    warm = "import math, re\ndef f(x):\n    return [math.sqrt(i) for i in range(x)]\nassert re.match('a+', 'aa') and f(3)\n"
    exec(compile(warm, "warm", "exec"), namespace)  # noqa: S102 - our own text
    with contextlib.suppress(ZeroDivisionError):
        exec(compile("1/0", "warm", "exec"), namespace)  # noqa: S102 - our own text
    gc.collect()
    gc.disable()
    gc.freeze()


class ForkServer:
    """Serves launches on `link` until it closes."""

    def __init__(self, link: socket.socket, isolation: Isolation) -> None:
        self.link = link
        self.isolation = isolation
        self.first_of_namespace = "pid_ns" in isolation.active and os.getpid() == 1
        self.work = os.path.join(isolation.folder, "run")
        self.folders = [isolation.folder]
        if "mount_ns" in isolation.active:
            self.folders.append("/dev/shm")
        self.sees_processes = os.path.exists("/proc/self/statm")
        self.page = resource.getpagesize()

    def serve(self) -> NoReturn:
        """Answer launch messages; ends the process when the worker closes the link."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # The worker sends this when it has become our parent: its death is ours from now on.
        if self.link.recv(16) != START:
            self._leave()
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        self.link.send(json.dumps({"active": sorted(self.isolation.active), "missing": self.isolation.missing}).encode())
        self._prepare_folder()
        while True:
            message, descriptors, _, _ = socket.recv_fds(self.link, MESSAGE_LIMIT, 8)
            if not message:
                self._leave()
            if message in (KILL, WAITED):
                continue  # crossed the report of the child that it was about
            if message == CLEAN:
                self._prepare_folder()
                continue
            self._serve_one(json.loads(message), descriptors)

    def _leave(self) -> NoReturn:
        self._kill_all()
        if "mount_ns" not in self.isolation.active:
            empty_folder(self.isolation.folder)
            with contextlib.suppress(OSError):
                os.rmdir(self.isolation.folder)
        os._exit(0)

    def _serve_one(self, launch: dict[str, Any], descriptors: list[int]) -> None:
        limits = Limits(**launch["limits"])
        started = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = os.fork()
        if child == 0:
            self._become_child(launch, limits, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        killed = self._watch(child, limits)
        _, status = os.waitpid(child, 0)
        self._kill_all()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        report = {
            "status": status,
            "killed": killed,
            "cpu": used.ru_utime + used.ru_stime - started.ru_utime - started.ru_stime,
        }
        files = self._open_fetched(launch.get("fetch") or [])
        socket.send_fds(self.link, [json.dumps(report).encode()], files)
        for descriptor in files:
            if descriptor > 2:
                os.close(descriptor)
        if not launch.get("keep"):
            self._prepare_folder()

    def _watch(self, child: int, limits: Limits) -> str | None:
        """Wait for the child's end; returns why it was killed, if it was."""
        pidfd = os.pidfd_open(child)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self.link, select.POLLIN)
        killed = None
        try:
            while True:
                events = dict(poll.poll(_TICK_MS))
                if pidfd in events:
                    return killed
                if self.link.fileno() in events:
                    killed = self._obey(child) or killed
                elif killed is None and self._memory_used() > limits.memory_mb << 20:
                    killed = "memory"
                    self._kill()
        finally:
            os.close(pidfd)

    def _obey(self, child: int) -> str | None:
        order = self.link.recv(16)
        if order == WAITED:
            self.link.send(str(self._time_waited(child)).encode())
            return None
        if not order:
            self._leave()
        self._kill()
        return "order"

    def _time_waited(self, child: int) -> int:
        """Nanoseconds that the program was ready to run but had no processor."""
        try:
            with open(f"/proc/{child}/schedstat") as file:
                return int(file.read().split()[1])
        except (OSError, IndexError, ValueError):
            return 0

    def _memory_used(self) -> int:
        """Bytes of private memory of all processes of the program."""
        if not self.sees_processes:
            return 0
        total = 0
        for pid in self._program_processes():
            with contextlib.suppress(OSError, IndexError, ValueError):
                with open(f"/proc/{pid}/statm") as file:
                    _, resident, shared = file.read().split()[:3]
                total += (int(resident) - int(shared)) * self.page
        return total

    def _program_processes(self) -> list[int]:
        if self.first_of_namespace:
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        return _descendants(os.getpid())

    def _kill_all(self) -> None:
        """Kill and reap until this process has no children: orphans come to it, as the first process or a subreaper."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            while True:
                self._kill()
                os.waitpid(-1, 0)
        except ChildProcessError:
            return

    def _kill(self) -> None:
        with contextlib.suppress(OSError):
            if self.first_of_namespace:
                # One call that no fork can outrun: everything in this namespace except ourselves.
                os.kill(-1, signal.SIGKILL)
                return
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _become_child(self, launch: dict[str, Any], limits: Limits, descriptors: list[int]) -> NoReturn:
        try:
            os.setsid()
            for target, source in enumerate(descriptors[1:4]):
                os.dup2(source, target)
            keep = [descriptors[0], *descriptors[4:5]]
            _move_up(keep)
            os.chdir(self.work)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            self.isolation.confine(limits, executes="command" in launch)
        except BaseException as error:
            os.write(2, f"sandbox: could not confine the program: {error!r}\n".encode())
            os._exit(1)
        control = socket.socket(fileno=_CONTROL)
        send_frame(control, READY)
        calls = socket.socket(fileno=_CALLS) if len(keep) > 1 else None
        run_child(control, calls)

    def _prepare_folder(self) -> None:
        for folder in self.folders:
            empty_folder(folder)
        os.mkdir(self.work, 0o700)
        if os.geteuid() == 0:
            user = os.stat(self.isolation.folder)
            os.chown(self.work, user.st_uid, user.st_gid)
        os.chdir("/")

    def _open_fetched(self, paths: list[str]) -> list[int]:
        """Descriptors of the files that the request asked for; /dev/null's stands for one that is not there."""
        return [_open_inside(self.work, path) for path in paths]


def _move_up(descriptors: list[int]) -> None:
    # 3.. is where programs expect their own files: what is ours sits above, everything else is closed.
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LAST_OWN) for descriptor in descriptors]
    for number, copy in zip((_CONTROL, _CALLS), copies, strict=False):
        os.dup2(copy, number, inheritable=False)
    os.closerange(3, _CONTROL)
    os.closerange(_CONTROL + len(descriptors), _LAST_OWN + 16)


def run_child(control: socket.socket, calls: socket.socket | None) -> NoReturn:
    """What a confined child does: read its order from the worker and carry it out."""
    payload = receive_frame(control)
    gc.enable()
    if payload["mode"] == "judge":
        assert calls is not None
        judge.Judge(payload, control, calls).run()
        os._exit(0)
    try:
        program.write_files(payload.get("files") or {})
    except (OSError, ValueError) as error:
        os.write(2, f"sandbox: {error}\n".encode())
        os._exit(1)
    if payload["mode"] == "command":
        if "code" in payload:
            with open(payload["source"], "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(payload["code"])
        control.close()
        program.execute_command(payload["argv"])
    sys.path[0:0] = [os.getcwd()]
    sys.argv = [program.SCRIPT]
    if payload["mode"] == "serve":
        assert calls is not None
        program.serve_calls(payload, calls)
    program.run_script(payload, control)


def _descendants(ancestor: int) -> list[int]:
    """Process ids of all descendants of a process, children first."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    found: list[int] = []
    layer = {ancestor}
    while layer:
        layer = {pid for pid, parent in parents.items() if parent in layer}
        found += layer
    return found


def _open_inside(folder: str, path: str) -> int:
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if path.startswith("/") or ".." in parts or not parts:
            raise OSError("not below the working directory")
        for part in parts[:-1]:
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = deeper
        found = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here)
        if stat.S_ISREG(os.fstat(found).st_mode):
            return found
        os.close(found)
    except OSError:
        pass
    finally:
        os.close(here)
    return os.open(os.devnull, os.O_RDONLY)


def empty_folder(folder: str) -> None:
    """Remove everything below `folder`, however deep, without recursion and without following a link."""
    serial = 0
    # A name that a program can't have taken beforehand.
    prefix = os.path.join(folder, "." + os.urandom(8).hex())
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            with contextlib.suppress(PermissionError):
                os.chmod(entry.path, 0o700)
            # What is below moves up one floor, so no path grows longer than the system allows.
            for inner in list(os.scandir(entry.path)):
                serial += 1
                if inner.is_dir(follow_symlinks=False):
                    with contextlib.suppress(PermissionError):
                        os.chmod(inner.path, 0o700)
                    os.rename(inner.path, f"{prefix}{serial}")
                else:
                    os.unlink(inner.path)
            os.rmdir(entry.path)
