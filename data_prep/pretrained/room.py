"""Memory and disk of this machine, and whether a conversion has enough of both. The message has the arithmetic."""

import shutil
from pathlib import Path

from data_prep.pretrained.errors import PretrainedError

# Python with torch and transformers; then, per parameter, the dequantised tensors (4 bytes) and the model (2). The
# conversion of SmolLM2-135M reaches 1.07 GB.
BASE_BYTES, BYTES_PER_PARAMETER = 600_000_000, 6
STORED_BYTES_PER_PARAMETER = 2
TOKENIZER_BYTES = 20_000_000

_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def require_memory(parameters: int, available: int | None = None) -> None:
    """Raise PretrainedError if the conversion of a model needs more memory than is available, in bytes."""
    available = available_memory() if available is None else available
    needed = BASE_BYTES + BYTES_PER_PARAMETER * parameters
    if available is not None and needed > available:
        raise PretrainedError(
            f"too little memory: {gigabytes(needed)} needed ({gigabytes(BASE_BYTES)} for torch and transformers + "
            f"{BYTES_PER_PARAMETER} bytes x {parameters / 1e6:,.1f} million parameters), {gigabytes(available)} "
            "available; close other programs or take a smaller model"
        )


def require_disk(
    folder: Path, parts: dict[str, int], free: int | None = None, fix: str = "free some or choose another --out"
) -> None:
    """Raise PretrainedError unless the disk of `folder` has room for these parts, in bytes by name."""
    free = shutil.disk_usage(_existing(folder)).free if free is None else free
    needed = sum(parts.values())
    if needed > free:
        sizes = " + ".join(f"{gigabytes(size)} {name}" for name, size in parts.items())
        raise PretrainedError(
            f"too little disk at {folder}: {gigabytes(needed)} needed ({sizes}), {gigabytes(free)} free; {fix}"
        )


def folder_bytes(parameters: int) -> int:
    """Size of a converted model's folder: weights in bfloat16 and a tokenizer."""
    return STORED_BYTES_PER_PARAMETER * parameters + TOKENIZER_BYTES


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
    """(limit, used) of the container's memory; empty outside one."""
    return [
        (int(text), int(used.read_text()))
        for limit, used in _CGROUPS
        if limit.is_file() and used.is_file() and (text := limit.read_text().strip()).isdigit()
    ]


def gigabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1e9:.2f} GB"


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())
