"""Digests of what a run begins with: the model's folder and the files of rows."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from omegaconf import ListConfig

from data_prep.files import file_hash
from data_prep.pretrained.folders import WEIGHTS

MODEL_FILES = ("config.json", "generation_config.json", "tokenizer*", "chat_template*", "vocab*", "merges*", "*.model")
# A large weight file is sampled at this many blocks of this many bytes: training changes all of it.
BLOCKS, BLOCK = 64, 1 << 20


def data_digest(files: str | ListConfig | None) -> str:
    """A 16-digit digest of the training files' contents; empty if one is missing."""
    paths = [Path(file).expanduser() for file in ([files] if isinstance(files, str) else files or [])]
    if not all(path.is_file() for path in paths):
        return ""
    return hashlib.sha256("".join(map(file_hash, paths)).encode()).hexdigest()[:16]


def weights_digest(folder: Path) -> str:
    """A 16-digit digest of a model folder's weights; empty if there are none, as for a hub id.

    It covers each file's size and evenly spaced blocks, up to 64 MiB: seconds for any model, all of a small one.
    """
    digest = hashlib.sha256()
    files = sorted(path for pattern in WEIGHTS for path in folder.glob(pattern))
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            spread = ((size - BLOCK) * block // (BLOCKS - 1) for block in range(BLOCKS))
            for start in range(0, size, BLOCK) if size <= BLOCK * BLOCKS else spread:
                file.seek(start)
                digest.update(file.read(BLOCK))
    return digest.hexdigest()[:16] if files else ""


def model_digest(folder: Path, patterns: Sequence[str] = MODEL_FILES) -> str:
    """A 16-digit digest of a model folder: weights as in `weights_digest`, and the files that match a pattern."""
    files = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    parts = [weights_digest(folder), *(f"{path.name} {file_hash(path)}" for path in files)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
