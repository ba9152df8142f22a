"""Whether a conversion has enough memory and disk. The message has the arithmetic."""

from pathlib import Path

from data_prep.machine import available_memory, disk_refusal, gigabytes
from data_prep.pretrained.errors import PretrainedError

# Python with torch and transformers; then, per parameter, the dequantised tensors (4 bytes) and the model (2). The
# conversion of SmolLM2-135M reaches 1.07 GB.
BASE_BYTES, BYTES_PER_PARAMETER = 600_000_000, 6
STORED_BYTES_PER_PARAMETER = 2
TOKENIZER_BYTES = 20_000_000


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
    if why := disk_refusal(folder, parts, "free some or choose another --out", free):
        raise PretrainedError(why)


def folder_bytes(parameters: int) -> int:
    """Size of a converted model's folder: weights in bfloat16 and a tokenizer."""
    return STORED_BYTES_PER_PARAMETER * parameters + TOKENIZER_BYTES
