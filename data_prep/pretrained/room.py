"""Is there enough memory and disk for a conversion? The message has the arithmetic."""

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


def require_disk(folder: Path, parts: dict[str, int], free: int | None = None) -> None:
    """Raise PretrainedError unless the disk of `folder` has room for these parts, in bytes by name."""
    free = shutil.disk_usage(_existing(folder)).free if free is None else free
    needed = sum(parts.values())
    if needed > free:
        sizes = " + ".join(f"{gigabytes(size)} {name}" for name, size in parts.items())
        raise PretrainedError(
            f"too little disk at {folder}: {gigabytes(needed)} needed ({sizes}), {gigabytes(free)} free; free some or "
            "choose another --out"
        )


def folder_bytes(parameters: int) -> int:
    """Size of a converted model's folder: weights in bfloat16 and a tokenizer."""
    return STORED_BYTES_PER_PARAMETER * parameters + TOKENIZER_BYTES


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes of memory that a new program can use, within the container's limit; None if the system does not say."""
    found = []
    if meminfo.is_file():
        sizes = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        found.append(int(sizes["MemAvailable"].split()[0]) * 1024)
    for limit, used in _CGROUPS:
        if limit.is_file() and used.is_file() and (text := limit.read_text().strip()).isdigit():
            found.append(max(0, int(text) - int(used.read_text())))
    return min(found, default=None)


def gigabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1e9:.2f} GB"


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())
