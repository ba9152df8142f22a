"""Kernel calls that isolation needs and Python does not wrap. Every function raises `OSError` on failure."""

from __future__ import annotations

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 1, 4, 38, 22
PR_SET_CHILD_SUBREAPER = 36

# Calls added since 2018 have one number on all architectures; older ones differ.
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_MOUNT_SETATTR = 442
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(number: int, *arguments: object) -> int:
    """Make a system call by number and return its result."""
    return _checked(_libc.syscall(ctypes.c_long(number), *arguments), f"syscall {number}")


def unshare(flags: int) -> None:
    """Move this process (for CLONE_NEWPID: its next children) into new namespaces."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str | None = None) -> None:
    """mount(2)."""
    encoded = [text.encode() if text is not None else None for text in (source, target, kind, options)]
    _checked(
        _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]),
        f"mount {source} on {target}",
    )


def unmount(target: str) -> None:
    """Detach a mount, even one that is in use."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def set_read_only(path: str) -> None:
    """Make the mount at `path` and all mounts below it read-only (Linux 5.12): mount_setattr with AT_RECURSIVE."""
    attributes = struct.pack("QQQQ", MS_RDONLY | MS_NOSUID, 0, 0, 0)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    syscall(_MOUNT_SETATTR, -100, path.encode(), 0x8000, buffer, ctypes.c_size_t(len(attributes)))


def pivot_root(new_root: str, put_old: str) -> None:
    """pivot_root(2)."""
    syscall(_PIVOT_ROOT[os.uname().machine], new_root.encode(), put_old.encode())


def prctl(option: int, *arguments: object) -> None:
    """prctl(2) with integer or pointer arguments."""
    padded = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    padded += [ctypes.c_ulong(0)] * (4 - len(padded))
    _checked(_libc.prctl(option, *padded), f"prctl {option}")


def drop_capabilities() -> None:
    """Drop every capability of this process; together with no_new_privs, permanently."""
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0), 8)
    data = ctypes.create_string_buffer(24)
    syscall(_CAPSET[os.uname().machine], header, data)
