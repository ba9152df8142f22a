"""Local folder of a model, which is given as a folder or by a hub name.

For a complete model folder, this is the folder itself. For a hub name (``owner/model``), it is the snapshot in the
Hugging Face cache (``HF_HOME``), downloaded if missing; commands that get this folder all read the same weights. On a
cluster the cache must be on storage shared by all nodes.
"""

from pathlib import Path

from recipe.checks.model import missing_parts

# The same weights in the formats of other programs.
OTHER_FORMATS = ["*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.pth", "onnx/*", "original/*"]


class ModelError(ValueError):
    """There is no such model; the message addresses the user."""


def model_folder(name: str) -> Path:
    """Folder with configuration, tokenizer and weights of a model, from its folder or hub name.

    Raises:
        ModelError: there is no such folder or hub model, or the folder is incomplete.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = _snapshot(name)
    if missing := missing_parts(folder):
        raise ModelError(f"no complete model: {'; '.join(missing)}")
    return folder


def _snapshot(name: str) -> Path:
    if name.startswith(("/", ".", "~")) or name.count("/") != 1:
        raise ModelError(f"no such model folder: {name}; give a Hugging Face folder or a hub name (owner/model)")
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(name, ignore_patterns=OTHER_FORMATS))
    except Exception as error:  # the hub client raises errors of several libraries
        raise ModelError(
            f"{name} is not a local folder and could not be loaded from the Hugging Face hub "
            f"({type(error).__name__}: {' '.join(str(error).split())}); "
            "without a network, download it elsewhere and give its folder"
        ) from error
