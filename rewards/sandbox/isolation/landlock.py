"""Landlock: limits a program's use of files, TCP ports and signals, even where mounts are unavailable."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct

from rewards.sandbox.isolation import syscalls

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILES_BY_ABI = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | 0x4000 | 0x8000
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def supported_version() -> int:
    """The kernel's Landlock version, 0 if it has none."""
    try:
        return syscalls.syscall(syscalls.LANDLOCK_CREATE_RULESET, None, 0, 1)
    except OSError:
        return 0


def protects_signals() -> bool:
    """Whether this kernel prevents a restricted process from signalling others (version 6, Linux 6.12)."""
    return supported_version() >= 6


def open_ruleset(readable: list[str], writable: list[str]) -> int:
    """Build a rule set and return its descriptor: read and execute in `readable` trees, full access in `writable` ones.

    All TCP is refused, and so are signals and abstract unix sockets to processes outside. Raises `OSError` if the
    kernel has no Landlock.
    """
    version = supported_version()
    if version < 1:
        raise OSError("the kernel has no Landlock")
    files = _FILES_BY_ABI[min(version, 5)]
    attributes = struct.pack("QQQ", files, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = syscalls.syscall(
        syscalls.LANDLOCK_CREATE_RULESET, ctypes.create_string_buffer(attributes, size), ctypes.c_size_t(size), 0
    )
    for path in readable:
        _allow(ruleset, path, _READ & files)
    for path in writable:
        _allow(ruleset, path, files)
    for path in _DEVICES:
        _allow(ruleset, path, (_READ_FILE | _WRITE_FILE) & files)
    return ruleset


def _allow(ruleset: int, path: str, access: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):
                access &= _ON_FILES
            rule = ctypes.create_string_buffer(struct.pack("=Qi", access, descriptor), 12)
            syscalls.syscall(syscalls.LANDLOCK_ADD_RULE, ruleset, 1, rule, 0)
        finally:
            os.close(descriptor)


def restrict(ruleset: int) -> None:
    """Apply the rules to this process and its descendants; needs no_new_privs. Raises `OSError`."""
    syscalls.syscall(syscalls.LANDLOCK_RESTRICT_SELF, ruleset, 0)
