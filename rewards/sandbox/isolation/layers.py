"""The layers between a program and the machine: set up once per fork server, applied to each child before it runs.

A layer that the machine refuses is recorded with the reason and reported; whether to continue without it is the
server's decision (`--isolation`, modes.py), never this module's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from rewards.sandbox.isolation import landlock, namespaces, seccomp, syscalls

PROGRAM_USER = 1000
LAYERS = ("uid", "user_ns", "pid_ns", "mount_ns", "net_ns", "ipc_ns", "uts_ns", "seccomp", "landlock")
_RULESET = 200
"""Descriptor of the Landlock rules, above those that a child closes before it is confined."""
FILE_MB, OPEN_FILES, PROCESSES = 32, 256, 64
"""Limits common to all programs: size of a file in MiB, open files, processes and threads."""
_NAMESPACES = {
    "net_ns": syscalls.CLONE_NEWNET,
    "ipc_ns": syscalls.CLONE_NEWIPC,
    "uts_ns": syscalls.CLONE_NEWUTS,
}


@dataclass
class Isolation:
    """The layers of one slot. `outside_user` is the first of its two host user ids; `root`: this process has them."""

    wanted: bool
    outside_user: int
    python: list[str]
    quota_mb: int
    active: set[str] = field(default_factory=set)
    missing: dict[str, str] = field(default_factory=dict)
    folder: str = "/tmp"
    root: bool = field(init=False)
    _ruleset: int | None = None
    _filter: bytes | None = None
    _base_memory: int = 0

    def __post_init__(self) -> None:
        self.root = namespaces.may_become(self.outside_user + 1)

    def required(self) -> list[str]:
        """The layers that `strict` requires: only root can assign a separate user id."""
        return [layer for layer in LAYERS if layer != "uid" or self.root]

    def _try(self, layer: str, step: Callable[[], Any]) -> bool:
        try:
            step()
        except (OSError, ValueError, KeyError) as error:
            self.missing[layer] = getattr(error, "strerror", None) or str(error)
            return False
        self.active.add(layer)
        return True

    def fork_inside(self, serve: Callable[[], None]) -> None:
        """Fork a process that runs in new namespaces and calls `serve`; it becomes a child of this one.

        A process can prepare new namespaces for its children only once, so a helper does it and exits.
        """
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        helper = os.fork()
        if helper == 0:
            try:
                self._fork_from_helper(serve)
            except BaseException:
                traceback.print_exc()  # in the helper or in what it forks: both end here, and nobody else would tell
            finally:
                os._exit(1)
        _, status = os.waitpid(helper, 0)
        if status:
            raise OSError("the namespaces could not be prepared")

    def _fork_from_helper(self, serve: Callable[[], None]) -> NoReturn:
        if self.wanted and not self.root:
            outside = os.geteuid()
            # Without a user namespace an ordinary user can't create the others.
            if self._try("user_ns", lambda: syscalls.unshare(syscalls.CLONE_NEWUSER)):
                namespaces.map_users("self", [(PROGRAM_USER, outside)])
        if self.wanted:
            self._try("pid_ns", lambda: syscalls.unshare(syscalls.CLONE_NEWPID))
        helper, inner = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            helper.close()
            self._enter(inner if self.root else None)
            inner.close()
            serve()
        inner.close()
        if self.root and self.wanted and helper.recv(1):
            self._map_from_outside(pid, helper)
        os._exit(0)

    def _map_from_outside(self, pid: int, helper: socket.socket) -> None:
        # Only a process outside with CAP_SETUID may map two users: the server's (0) and the program's.
        pairs = [(0, self.outside_user), (PROGRAM_USER, self.outside_user + 1)]
        try:
            namespaces.map_users(pid, pairs)
            helper.send(b"y")
        except OSError:
            helper.send(b"n")
        helper.recv(1)

    def _enter(self, helper: socket.socket | None) -> None:
        if self.wanted:
            for layer, flag in _NAMESPACES.items():
                self._try(layer, lambda flag=flag: syscalls.unshare(flag))  # type: ignore[misc]
            if "uts_ns" in self.active:  # otherwise this would change the host's name
                with contextlib.suppress(OSError):
                    socket.sethostname("sandbox")
            self._try("mount_ns", self._build_tree)
        if "mount_ns" not in self.active:
            self.folder = f"/tmp/sandbox-{os.urandom(8).hex()}"
            os.mkdir(self.folder, 0o700)
        if helper is not None:
            self._become_slot_user(helper)
        self._confine_server()
        # Without signal handlers and not dumpable: from inside, the first process of a namespace can't be signalled,
        # read or traced.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)

    def _build_tree(self) -> None:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        owner = self.outside_user + 1 if self.root else PROGRAM_USER
        # Any folder can be the mount point: the mount is visible only in this namespace.
        namespaces.build_tree("/tmp", self.python, owner, self.quota_mb)

    def _become_slot_user(self, helper: socket.socket) -> None:
        if "mount_ns" not in self.active:
            os.chown(self.folder, self.outside_user + 1, self.outside_user + 1)
        if self.wanted and self._try("user_ns", lambda: syscalls.unshare(syscalls.CLONE_NEWUSER)):
            helper.send(b"m")
            if helper.recv(1) != b"y":
                raise OSError(errno.EPERM, "the user namespace could not be mapped")
            self._try("uid", _become_first_user)
        elif self.wanted:
            self.active.add("uid")

    def _confine_server(self) -> None:
        """Apply the layers that children inherit to this fork server: set once, they cost a child nothing."""
        with contextlib.suppress(OSError), open("/proc/self/statm") as file:
            self._base_memory = int(file.read().split()[0]) * resource.getpagesize()
        self._set_fixed_limits()
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        if not self.wanted:
            return
        private = "mount_ns" in self.active
        readable = ["/"] if private else namespaces.readable_folders(self.python)
        writable = ["/tmp", "/dev/shm"] if private else [self.folder]
        alone = "pid_ns" in self.active

        def landlock_layer() -> None:
            ruleset = landlock.open_ruleset(readable, writable)
            if alone:
                landlock.restrict(ruleset)
            else:
                # Its signal rule must also hold between the server and its child, so the child applies it.
                self._ruleset = os.dup2(ruleset, _RULESET, inheritable=False)
            os.close(ruleset)

        def seccomp_layer() -> None:
            self._filter = seccomp.build_filter(alone=alone)
            if alone:
                seccomp.install(self._filter)

        self._try("landlock", landlock_layer)
        self._try("seccomp", seccomp_layer)

    def confine(self, memory_mb: int, cpu_seconds: int, *, executes: bool) -> None:
        """Apply the remaining limits and layers to this process, which is about to run a program. Raises `OSError`.

        Few and simple calls on purpose: every memory page that a child touches is copied, which is most of its cost.
        """
        memory = (memory_mb << 20) + (0 if executes else self._base_memory)
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        # One second between the two: SIGXCPU identifies the limit, while the SIGKILL after it could be anyone's.
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
        if not self.wanted:
            return
        if self.root:
            user = PROGRAM_USER if "user_ns" in self.active else self.outside_user + 1
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        elif "user_ns" in self.active or os.geteuid() == 0:
            syscalls.drop_capabilities()
        # Its children must not read the fork server, but it must read how much memory they hold.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        if "pid_ns" not in self.active:
            self._confine_among_others()

    def _confine_among_others(self) -> None:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 9)
        if self._ruleset is not None:
            landlock.restrict(self._ruleset)
            os.close(self._ruleset)
        if self._filter is not None:
            shielded = self._ruleset is not None and landlock.protects_signals()
            seccomp.install(self._filter if shielded else seccomp.build_filter(os.getpid()))

    def _set_fixed_limits(self) -> None:
        pairs = [
            (resource.RLIMIT_FSIZE, FILE_MB << 20),
            (resource.RLIMIT_NOFILE, OPEN_FILES),
            (resource.RLIMIT_CORE, 0),
        ]
        # Processes are counted per user: without its own user, a slot would count those of the whole machine.
        if self.active & {"user_ns", "uid"}:
            pairs.append((resource.RLIMIT_NPROC, PROCESSES))
        for kind, value in pairs:
            resource.setrlimit(kind, (value, value))


def _become_first_user() -> None:
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
