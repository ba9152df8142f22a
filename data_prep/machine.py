"""Memory and disk of this machine, or of its container."""

import shutil
from collections.abc import Mapping
from pathlib import Path

# Files with a container's limit and use, and the name in memory.stat of the cached files that the system drops first.
_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"), "inactive_file"),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
        "total_inactive_file",
    ),
)


def disk_refusal(folder: Path, parts: Mapping[str, int], fix: str, free: int | None = None) -> str | None:
    """Why the disk of `folder` has no room for these parts, in bytes by name, and how to fix it; None if it has."""
    free = shutil.disk_usage(_existing(folder)).free if free is None else free
    needed = sum(parts.values())
    if needed <= free:
        return None
    sizes = " + ".join(f"{gigabytes(size)} {name}" for name, size in parts.items())
    return f"too little disk at {folder}: {gigabytes(needed)} needed ({sizes}), {gigabytes(free)} free; {fix}"


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes of memory that a new program can use, within the container's limit; None if the system does not say."""
    found = [limit - used for limit, used in _containers()]
    return min([*_stated(meminfo, "MemAvailable"), *(max(0, size) for size in found)], default=None)


def total_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes of memory that all programs together can use, as `available_memory`."""
    return min([*_stated(meminfo, "MemTotal"), *(limit for limit, _ in _containers())], default=None)


def _stated(meminfo: Path, name: str) -> list[int]:
    if not meminfo.is_file():
        return []
    sizes = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return [int(sizes[name].split()[0]) * 1024]


def _containers() -> list[tuple[int, int]]:
    """(limit, used) of the container's memory; empty outside one. Files that are only cached are not used."""
    return [
        (int(text), int(used.read_text()) - _cached(used.with_name("memory.stat"), cached))
        for limit, used, cached in _CGROUPS
        if limit.is_file() and used.is_file() and (text := limit.read_text().strip()).isdigit()
    ]


def _cached(stat: Path, name: str) -> int:
    lines = stat.read_text().splitlines() if stat.is_file() else []
    return next((int(size) for key, size in map(str.split, lines) if key == name), 0)


def gigabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1e9:.2f} GB"


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())
