"""The fork server of one slot: forks a child per program and cleans up after it.

It receives only limits and descriptors. Code, input and tests go directly to the child, so that no later child can find
them in inherited memory.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import posix
import random
import resource
import select
import signal
import site
import socket
import struct
import time
from typing import Any, NoReturn

from rewards.sandbox.inside import child, program
from rewards.sandbox.isolation import syscalls
from rewards.sandbox.isolation.layers import Isolation
from rewards.sandbox.worker.folders import WorkFolder, open_inside

PRELOADED = (
    "abc", "array", "bisect", "cmath", "collections", "collections.abc", "contextlib", "copy", "dataclasses",
    "datetime", "decimal", "enum", "fractions", "functools", "gc", "heapq", "io", "itertools", "json", "math",
    "numbers", "operator", "os", "queue", "random", "re", "statistics", "string", "struct", "sys", "textwrap",
    "threading", "time", "traceback", "types", "typing",
)  # fmt: skip
_TICK = 0.02
"""Seconds between two checks of a running program."""
_LOOKING = 0.2
"""Maximum share of a CPU that these checks may take."""
MESSAGE_LIMIT = 1 << 16
START, KILL, WAITED, CLEAN = b"start", b"kill", b"waited", b"clean"
LAUNCH = struct.Struct("!8sIIB")
"""A launch: token, memory in MiB, CPU seconds, flags; followed by the JSON list of files to fetch, if any."""
EXECUTES, KEEP_FOLDER, COVERED = 1, 2, 4
"""Flags: may start other programs, keep its folder for the next one, the last descriptor is the memory of probes."""
REPORT = struct.Struct("!8sciid")
"""An answer: token of its launch, kind, wait status, reason of the kill, CPU seconds (or seconds of waiting for a
CPU)."""
ENDED, WAITING = b"e", b"w"
NOT_KILLED, BY_ORDER, FOR_MEMORY = 0, 1, 2
_PAGE = resource.getpagesize()
SOCKET_BYTES = 256 << 10
"""Maximum bytes that one unix socket holds with default buffers: programs can't change their size (seccomp.py)."""


def preload() -> None:
    """Import and warm up what programs use, then freeze it, so that a child starts warm and copies few pages."""
    # `threading` and `random` register fork hooks, to reset state after threads of the parent and to reseed. The parent
    # has no threads, so slot.py disables their registration while these modules load: a child forks faster without.
    os.register_at_fork = posix.register_at_fork
    # Every child starts with the same random state: a program that uses it gets the same outcome twice.
    random.seed(0)
    for name in PRELOADED:
        importlib.import_module(name)
    namespace: dict[str, Any] = {}
    warm = (
        "import math, re\ndef f(x):\n    return [math.sqrt(i) for i in range(x)]\nassert re.match('a', 'a') and f(3)\n"
    )
    exec(compile(warm, "warm", "exec"), namespace)  # noqa: S102 - our own text
    with contextlib.suppress(ZeroDivisionError):
        exec(compile("1/0", "warm", "exec"), namespace)  # noqa: S102 - our own text
    site.setquit()
    site.sethelper()
    site.setcopyright()
    _make_streams()
    gc.collect()
    gc.disable()
    gc.freeze()


def _make_streams() -> None:
    """Create standard streams over pipes: properties that Python determines at creation, such as whether a stream can
    seek, then hold in the children, no matter where this server's own output goes."""
    streams = [os.dup(descriptor) for descriptor in range(3)]
    ends = os.pipe()
    for descriptor, end in enumerate((ends[0], ends[1], ends[1])):
        os.dup2(end, descriptor)
    program.fresh_streams()
    for descriptor, saved in enumerate(streams):
        os.dup2(saved, descriptor)
        os.close(saved)
    for end in ends:
        os.close(end)


def seconds_delayed(pid: int | str) -> float:
    """Seconds that a process's first thread was runnable without a CPU; 0.0 where the kernel does not report it."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _until_it_runs(pid: int) -> None:
    """Wait, at most half a second, until a runnable program has a CPU: the kernel counts a wait once it is over."""
    before = now = _state_and_runtime(pid)
    for _ in range(50):
        if now[0] != "R" or now != before:
            return
        time.sleep(0.01)  # a tick of the kernel's clock, after which the figure of a running program has grown
        now = _state_and_runtime(pid)


def _state_and_runtime(pid: int) -> tuple[str, str]:
    """A process's state and how long it has had a CPU, as the kernel prints them; blank for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/schedstat") as schedule:
            return stat.read().rpartition(") ")[2][:1], schedule.read().split()[0]
    except (OSError, IndexError):
        return "", ""


class ForkServer:
    """Serves launches on `link` until it closes."""

    def __init__(self, link: socket.socket, isolation: Isolation) -> None:
        self.link = link
        self.isolation = isolation
        self.first_of_namespace = "pid_ns" in isolation.active and os.getpid() == 1
        self.folder = WorkFolder(isolation.folder, private="mount_ns" in isolation.active)
        self.sees_processes = os.path.exists("/proc/self/statm")
        self._delays = seconds_delayed("self")
        """This server's own delays until it last became idle: what is added then delays the next program's start."""
        self._late = 0.0
        program.PATH = os.path.join(self.folder.path, "main.py")

    def serve(self) -> NoReturn:
        """Answer launch messages; ends the process when the worker closes the link."""
        # No handlers: the first process of a namespace receives only those signals from inside that it handles.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # The worker sends this once it is our parent: from here on we die with it.
        if self.link.recv(16) != START:
            self._leave()
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        self.link.send(
            json.dumps({"active": sorted(self.isolation.active), "missing": self.isolation.missing}).encode()
        )
        self.folder.renew()
        while True:
            message, descriptors, _, _ = socket.recv_fds(self.link, MESSAGE_LIMIT, 8)
            if not message:
                self._leave()
            if message in (KILL, WAITED):
                continue  # the order crossed the report of its child
            if message == CLEAN:
                self.folder.renew()
                continue
            self._serve_one(message, descriptors)

    def _leave(self) -> NoReturn:
        self._kill_all()
        self.folder.remove()
        os._exit(0)

    def _serve_one(self, message: bytes, descriptors: list[int]) -> None:
        token, memory_mb, cpu_seconds, flags = LAUNCH.unpack_from(message)
        pid = os.fork()
        if pid == 0:
            self._become_child(memory_mb, cpu_seconds, flags, descriptors)
        self._late = seconds_delayed("self") - self._delays
        for descriptor in descriptors:
            os.close(descriptor)
        killed = self._watch(pid, token, memory_mb << 20)
        _, status, used = os.wait4(pid, 0)
        self._kill_all()
        files: list[int] = []
        if len(message) > LAUNCH.size:
            files = [open_inside(self.folder.path, path) for path in json.loads(message[LAUNCH.size :])]
        report = REPORT.pack(token, ENDED, status, killed, used.ru_utime + used.ru_stime)
        socket.send_fds(self.link, [report], files)
        for descriptor in files:
            os.close(descriptor)
        if not flags & KEEP_FOLDER:
            self.folder.renew()
        self._delays = seconds_delayed("self")

    def _watch(self, pid: int, token: bytes, memory: int) -> int:
        """Wait for the child's exit; returns the reason of the kill, or NOT_KILLED."""
        pidfd = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self.link, select.POLLIN)
        killed, tick = NOT_KILLED, _TICK
        try:
            while True:
                ready = [descriptor for descriptor, _ in poll.poll(tick * 1000)]
                if pidfd in ready:
                    return killed
                if ready:
                    killed = self._obey(pid, token) or killed
                elif not killed and self.sees_processes:
                    began = time.process_time()
                    if self._uses_more_than(memory):
                        killed = FOR_MEMORY
                        self._kill()
                    # Checking many processes is slow and must not take CPU time that others need.
                    tick = max(_TICK, (time.process_time() - began) * (1 / _LOOKING - 1))
        finally:
            os.close(pidfd)

    def _obey(self, pid: int, token: bytes) -> int:
        order = self.link.recv(16)
        if order == WAITED:
            self.link.send(REPORT.pack(token, WAITING, 0, 0, self._seconds_waited(pid)))
            return NOT_KILLED
        if not order:
            self._leave()
        self._kill()
        return BY_ORDER

    def _seconds_waited(self, pid: int) -> float:
        """Seconds that the program, or this server when it started it, was runnable without a CPU; 0.0 for several
        processes, which delay each other."""
        if self.sees_processes and len(self._program_processes()) > 1:
            return 0.0
        _until_it_runs(pid)
        return self._late + seconds_delayed(pid)

    def _uses_more_than(self, memory: int) -> bool:
        """Whether all processes of the program together hold more than `memory` bytes; pins several to one CPU."""
        processes = self._program_processes()
        if len(processes) > 1:
            _share_one_processor(processes)
        held = self._socket_bytes()
        # First a cheap upper bound, which counts shared and untouched pages for every process; the exact figure only
        # where it matters.
        if held + sum(_mapped_bytes(pid) for pid in processes) <= memory:
            return False
        if len(processes) > 1:
            held += _shared_bytes(processes)
        return held + sum(_proportional_bytes(pid) for pid in processes) > memory

    def _socket_bytes(self) -> int:
        """Maximum bytes that the program's unix sockets, including those in transit, hold in the kernel."""
        if "net_ns" not in self.isolation.active:
            return 0
        with contextlib.suppress(OSError), open("/proc/self/net/unix", "rb") as file:
            return max(0, file.read().count(b"\n") - 1) * SOCKET_BYTES
        return 0

    def _program_processes(self) -> list[int]:
        if self.first_of_namespace:
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        return _descendants(os.getpid())

    def _kill_all(self) -> None:
        """Kill and reap until this process has no children; orphans are reparented to it, as init or a subreaper."""
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
                # One call that no fork can outrun: it kills everything in this namespace except us.
                os.kill(-1, signal.SIGKILL)
                return
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _become_child(self, memory_mb: int, cpu_seconds: int, flags: int, descriptors: list[int]) -> NoReturn:
        try:
            os.setsid()
            os.dup2(descriptors[1], 0)
            os.dup2(descriptors[2], 1)
            os.dup2(descriptors[3], 2)
            # Programs expect their own files from 3 on: ours sit above, everything else is closed.
            os.dup2(descriptors[0], child.CONTROL, inheritable=False)
            if flags & COVERED:
                os.dup2(descriptors.pop(), child.EXECUTED, inheritable=False)
            if len(descriptors) > 4:
                os.dup2(descriptors[4], child.CALLS, inheritable=False)
            os.closerange(3, child.CONTROL)
            self.isolation.confine(memory_mb, cpu_seconds, executes=bool(flags & EXECUTES))
        except BaseException as error:
            os.write(2, f"sandbox: could not confine the program: {error!r}\n".encode())
            os._exit(1)
        os.write(child.CONTROL, program.READY)
        child.run_child()


def _share_one_processor(processes: list[int]) -> None:
    """Pin all processes of a program to one CPU, as if they were one; their children inherit it."""
    processor = {max(os.sched_getaffinity(0))}
    for pid in processes:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(pid, processor)


def _mapped_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[0]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _shared_bytes(processes: list[int]) -> int:
    """The size of all shared mappings of the processes, each counted once: pages touched by a process that has exited
    are missing from every proportional share."""
    sizes: dict[str, int] = {}
    for pid in processes:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/maps") as file:
            for line in file:
                addresses, flags, _, _, inode = line.split(maxsplit=5)[:5]
                if flags[3] == "s":
                    start, _, end = addresses.partition("-")
                    sizes[inode] = max(sizes.get(inode, 0), int(end, 16) - int(start, 16))
    return sum(sizes.values())


_COUNTED = ("Pss_Anon", "Private_Hugetlb", "Shared_Hugetlb")
"""Fields of smaps_rollup for a process's own memory: not library files, which every process maps."""


def _proportional_bytes(pid: int) -> int:
    """A process's proportional share of its memory without shared mappings: see `_shared_bytes`."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            lines = dict(line.split(":", 1) for line in file.read().split("\n")[1:] if ":" in line)
        return sum(int(lines[name].split()[0]) for name in _COUNTED if name in lines) << 10
    except (OSError, ValueError):
        return _mapped_bytes(pid)


def _descendants(ancestor: int) -> list[int]:
    """Process ids of all descendants of a process, children first."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    descendants: list[int] = []
    layer = {ancestor}
    while layer:
        layer = {pid for pid, parent in parents.items() if parent in layer}
        descendants += layer
    return descendants
