"""A program's writable folders: created before it runs, emptied after it, read for the files the caller requested."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection


class WorkFolder:
    """A slot's writable folders; the first one holds the working directory of each program in turn."""

    def __init__(self, folder: str, *, private: bool) -> None:
        self._private = private
        self._folders = [folder, "/dev/shm"] if private else [folder]
        # A new file tree holds only mounts of the environment here, which a program can't move.
        self._mounts = {path: frozenset(os.listdir(path)) if private else frozenset() for path in self._folders}
        name = "run"
        while name in self._mounts[folder]:
            name += "_"
        self.path = os.path.join(folder, name)
        self._modes = {path: stat.S_IMODE(os.stat(path).st_mode) for path in self._folders}
        self._numbers = {path: len(mounts) + (path == folder) for path, mounts in self._mounts.items()}
        self._inode = 0
        self._handle = -1

    def renew(self) -> None:
        """Remove the last program's files, then create an empty working directory and change to it."""
        if self._is_plain():
            return
        if self._handle >= 0:
            os.close(self._handle)
        for folder in self._folders:
            if stat.S_IMODE(os.stat(folder).st_mode) != self._modes[folder]:
                os.chmod(folder, self._modes[folder])
            empty_folder(folder, self._mounts[folder])
            _drop_attributes(folder)
        os.mkdir(self.path, 0o700)
        if os.geteuid() == 0:
            owner = os.stat(self._folders[0])
            os.chown(self.path, owner.st_uid, owner.st_gid)
        self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._inode = os.fstat(self._handle).st_ino
        os.chdir(self.path)

    def _is_plain(self) -> bool:
        """Whether the last program left at most its own source, which is removed: the fast path for the common case."""
        if self._handle < 0:
            return False
        status = os.lstat(self.path) if os.path.lexists(self.path) else None
        if status is None or status.st_ino != self._inode or status.st_mode != stat.S_IFDIR | 0o700:
            return False
        if any(stat.S_IMODE(os.stat(path).st_mode) != mode for path, mode in self._modes.items()):
            return False
        # The working directory exists and mounts can't disappear: the count shows whether there is more.
        if any(len(os.listdir(path)) != number for path, number in self._numbers.items()):
            return False
        left = os.listdir(self._handle)
        if left not in ([], ["main.py"]) or any(os.listxattr(path) for path in (*self._folders, self.path)):
            return False
        if left:
            try:
                os.unlink("main.py", dir_fd=self._handle)
            except OSError:
                return False
        return True

    def remove(self) -> None:
        """Remove the folder of a slot without a private file tree."""
        if not self._private:
            os.chdir("/")
            empty_folder(self._folders[0])
            with contextlib.suppress(OSError):
                os.rmdir(self._folders[0])


def _drop_attributes(folder: str) -> None:
    for name in os.listxattr(folder):
        os.removexattr(folder, name)


def empty_folder(folder: str, kept: Collection[str] = ()) -> None:
    """Remove everything below `folder` except the names in `kept`, at any depth, without recursion or following
    links."""
    serial = 0
    # A name that a program can't have used in advance.
    prefix = os.path.join(folder, "." + os.urandom(8).hex())
    while entries := [entry for entry in os.scandir(folder) if entry.name not in kept]:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            with contextlib.suppress(PermissionError):
                os.chmod(entry.path, 0o700)
            # Entries move up one level, so that no path exceeds the system's limit.
            for inner in list(os.scandir(entry.path)):
                serial += 1
                if inner.is_dir(follow_symlinks=False):
                    with contextlib.suppress(PermissionError):
                        os.chmod(inner.path, 0o700)
                    os.rename(inner.path, f"{prefix}{serial}")
                else:
                    os.unlink(inner.path)
            os.rmdir(entry.path)


def open_inside(folder: str, path: str) -> int:
    """Open the regular file at a relative path without following links; /dev/null if there is none."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if path.startswith("/") or ".." in parts or not parts:
            raise OSError("not below the working directory")
        for part in parts[:-1]:
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = deeper
        file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
        os.close(file)
    except OSError:
        pass
    finally:
        os.close(here)
    return os.open(os.devnull, os.O_RDONLY)
