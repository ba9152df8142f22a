"""A program's view of the machine: a separate file tree, process table, network and host name.

The tree holds the system's libraries and tools and the Python environment, all read-only, a few devices, and two small
in-memory file systems (`/tmp`, `/dev/shm`) with a quota. Homes, /etc, /var, the server's files and other slots are
not in it. An environment below `/tmp` is mounted there, and nothing else of this machine's `/tmp`.
`python_folders` finds the folders of this interpreter and its packages, under every name by which a program may import
them.
"""

from __future__ import annotations

import contextlib
import os
import sys

from rewards.sandbox.isolation import syscalls

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
WRITABLE = ("/tmp", "/dev/shm")
"""Folders private to a program; this machine's contents of them are hidden, except the environment."""
_NOT_SHOWN = ("/proc", "/sys", "/dev")
_MOST_LINKS = 40


def python_folders() -> list[str]:
    """Folders that an interpreter with this one's packages needs: prefixes, standard library, site-packages.

    Each under all of its names (in `sys.path`, along its symbolic links, its real path), without those inside another
    folder of the list; parents come before children.
    """
    # Imported here because only the server needs them: its workers stay small.
    import site
    import sysconfig

    folders = {sys.base_prefix, sys.base_exec_prefix, *sysconfig.get_paths().values(), *site.getsitepackages()}
    folders |= {path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")}
    names = {name for folder in folders if os.path.isdir(folder) for name in _names(os.path.abspath(folder))}
    return _outermost(sorted(names))


def _names(path: str) -> list[str]:
    """A path, each path along its chain of symbolic links, and its real path."""
    paths = [path, os.path.realpath(path)]
    for _ in range(_MOST_LINKS):
        expanded = _expand_first_link(path)
        if expanded is None:
            break
        path = expanded
        paths.append(path)
    return paths


def _expand_first_link(path: str) -> str | None:
    parts = path.split("/")
    for number in range(2, len(parts) + 1):
        start = "/".join(parts[:number])
        if os.path.islink(start):
            target = os.path.join(os.path.dirname(start), os.readlink(start))
            return os.path.normpath("/".join([target, *parts[number:]]))
    return None


def _outermost(names: list[str]) -> list[str]:
    outermost: list[str] = []
    for name in names:
        hidden = is_inside(name, _NOT_SHOWN) and not is_inside(name, WRITABLE)
        useless = name in ("/", *SYSTEM, *WRITABLE, *_NOT_SHOWN) or hidden
        if not useless and not is_inside(name, (*SYSTEM, *outermost)):
            outermost.append(name)
    return outermost


def is_inside(path: str, folders: tuple[str, ...] | list[str]) -> bool:
    """Whether a path is below one of these folders."""
    return any(path.startswith(folder + "/") for folder in folders)


def mount_points(folder: str, python: list[str]) -> list[str]:
    """Names in one of the writable folders that belong to the environment, not to programs."""
    return sorted({path.removeprefix(folder + "/").partition("/")[0] for path in python if is_inside(path, (folder,))})


_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime")
_SYSTEM_LINKS = ("/etc/alternatives",)
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
_MEMORY_FILE_SYSTEM = syscalls.MS_NOSUID | syscalls.MS_NODEV
_SMALL = "mode=0755,size=4m,nr_inodes=2k"


def readable_folders(python: list[str]) -> list[str]:
    """The paths that a program may read without a private tree: the same that the tree would hold."""
    return [*SYSTEM, *_SYSTEM_FILES, *_SYSTEM_LINKS, *python, "/proc"]


def build_tree(root: str, python: list[str], owner: int, quota_mb: int) -> None:
    """Mount the program's tree at the empty folder `root` and make it this process's root.

    `python`: folders of the environment, read-only. `owner`: user id (as seen here) of the writable folders. Raises
    `OSError` if a mount is refused.
    """
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    # Opened before mounting: the tree may be mounted over their parent folder.
    sources = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in python if os.path.isdir(path)}
    syscalls.mount("tmpfs", root, "tmpfs", _MEMORY_FILE_SYSTEM, _SMALL)
    for path in (*SYSTEM, *_SYSTEM_LINKS):
        _show(root, path)
    for path in _SYSTEM_FILES:
        _show(root, os.path.realpath(path), path)
    _make_devices(root)
    _write_accounts(root)
    # The process table belongs to the new process namespace; if the kernel refuses it, /proc stays empty.
    os.mkdir(root + "/proc")
    with contextlib.suppress(OSError):
        syscalls.mount("proc", root + "/proc", "proc", _MEMORY_FILE_SYSTEM | syscalls.MS_NOEXEC)
    writable = f"mode=0700,uid={owner},gid={owner},size={quota_mb}m,nr_inodes=16k"
    for folder in WRITABLE:
        os.makedirs(root + folder, exist_ok=True)
        syscalls.mount("tmpfs", root + folder, "tmpfs", _MEMORY_FILE_SYSTEM, writable)
    _show_environment(root, sources)
    _enter(root)


def _show_environment(root: str, sources: dict[str, int]) -> None:
    """Bind the environment at its own paths.

    In a folder that a program owns, the first component of such a path is a read-only mount: neither it nor anything
    below it can be renamed, removed or written to.
    """
    shields = [os.path.join(root + folder, name) for folder in WRITABLE for name in mount_points(folder, list(sources))]
    for shield in shields:
        os.mkdir(shield)
        syscalls.mount("tmpfs", shield, "tmpfs", _MEMORY_FILE_SYSTEM, _SMALL)
    for path, source in sources.items():
        os.makedirs(root + path, exist_ok=True)
        # By descriptor: a mount may hide the name.
        flags = syscalls.MS_BIND | syscalls.MS_REC
        syscalls.mount(f"/proc/self/fd/{source}", root + path, None, flags)
        syscalls.set_read_only(root + path)
        os.close(source)
    for shield in shields:
        syscalls.set_read_only(shield)


def _show(root: str, source: str, name: str | None = None) -> None:
    target = root + (name or source)
    if name is None and os.path.islink(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(os.readlink(source), target)
        return
    if not os.path.exists(source):
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    syscalls.mount(source, target, None, syscalls.MS_BIND | syscalls.MS_REC)
    syscalls.set_read_only(target)


def _make_devices(root: str) -> None:
    os.mkdir(root + "/dev")
    for name in _DEVICES:
        os.close(os.open(f"{root}/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        syscalls.mount(f"/dev/{name}", f"{root}/dev/{name}", None, syscalls.MS_BIND)
    for name, target in _LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")


def _write_accounts(root: str) -> None:
    os.makedirs(root + "/etc", exist_ok=True)
    with open(root + "/etc/passwd", "w") as file:
        file.write("root:x:0:0::/:/bin/false\nsandbox:x:1000:1000::/tmp:/bin/sh\n")
    with open(root + "/etc/group", "w") as file:
        file.write("root:x:0:\nsandbox:x:1000:\n")


def _enter(root: str) -> None:
    os.mkdir(root + "/.old")
    syscalls.pivot_root(root, root + "/.old")
    os.chdir("/")
    syscalls.unmount("/.old")
    os.rmdir("/.old")
    syscalls.mount("none", "/", None, syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | _MEMORY_FILE_SYSTEM)


def may_become(user: int) -> bool:
    """Whether this process is root and has this user id: the user namespace of a rootless container has few."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/uid_map") as file:
        ranges = [(int(first), int(count)) for first, _, count in map(str.split, file)]
    return any(first <= user < first + count for first, count in ranges)


def map_users(pid: int | str, pairs: list[tuple[int, int]]) -> None:
    """Map the users of the user namespace of process `pid`: (inside, outside) pairs, for users and groups alike."""
    lines = "".join(f"{inside} {outside} 1\n" for inside, outside in pairs)
    if os.geteuid() != 0:
        # The kernel lets an ordinary user map a group only when the namespace can't change groups.
        with open(f"/proc/{pid}/setgroups", "w") as file:
            file.write("deny")
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write(lines)
