"""Folders that pass for models."""

from pathlib import Path


def make_model(folder: Path, weights: bytes = b"one") -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def make_cached(cache: Path, name: str, weights: bytes = b"one", commit: str = "c0ffee") -> Path:
    """A snapshot of a hub's model as Hugging Face's cache holds it."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(commit)
    return make_model(repository / "snapshots" / commit, weights)
