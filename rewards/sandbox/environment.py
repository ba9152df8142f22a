"""Where this interpreter and its packages are: what a program must see to import them, by each of its names."""

from __future__ import annotations

import os
import sys

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
WRITABLE = ("/tmp", "/dev/shm")
"""Folders of a program's own; what stands below them on this machine is hidden, except its environment."""
_NOT_SHOWN = ("/proc", "/sys", "/dev")
_MOST_LINKS = 40


def python_folders() -> list[str]:
    """Folders that an interpreter with this one's packages needs: prefixes, standard library, site-packages.

    Each by the names that lead to it (in `sys.path`, what its links stand for, its real one), without those that
    lie in another one; parents come before children.
    """
    # Imported here because the server asks this, not its workers, which stay small.
    import site
    import sysconfig

    folders = {sys.base_prefix, sys.base_exec_prefix, *sysconfig.get_paths().values(), *site.getsitepackages()}
    folders |= {path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")}
    names = {name for folder in folders if os.path.isdir(folder) for name in _names(os.path.abspath(folder))}
    return _outermost(sorted(names))


def _names(path: str) -> list[str]:
    """A path, what each symbolic link on it turns it into one after the other, and its real name."""
    found = [path, os.path.realpath(path)]
    for _ in range(_MOST_LINKS):
        expanded = _expand_first_link(path)
        if expanded is None:
            break
        path = expanded
        found.append(path)
    return found


def _expand_first_link(path: str) -> str | None:
    parts = path.split("/")
    for number in range(2, len(parts) + 1):
        start = "/".join(parts[:number])
        if os.path.islink(start):
            target = os.path.join(os.path.dirname(start), os.readlink(start))
            return os.path.normpath("/".join([target, *parts[number:]]))
    return None


def _outermost(names: list[str]) -> list[str]:
    kept: list[str] = []
    for name in names:
        hidden = is_inside(name, _NOT_SHOWN) and not is_inside(name, WRITABLE)
        useless = name in ("/", *SYSTEM, *WRITABLE, *_NOT_SHOWN) or hidden
        if not useless and not is_inside(name, (*SYSTEM, *kept)):
            kept.append(name)
    return kept


def is_inside(path: str, folders: tuple[str, ...] | list[str]) -> bool:
    """Whether a path is below one of these folders."""
    return any(path.startswith(folder + "/") for folder in folders)


def mount_points(folder: str, python: list[str]) -> list[str]:
    """Names in one of the writable folders that belong to the environment, not to programs."""
    return sorted({path.removeprefix(folder + "/").partition("/")[0] for path in python if is_inside(path, (folder,))})
