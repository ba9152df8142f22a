"""The folder of a model that is named by a folder or by the hub's name.

A folder is itself, once it is complete. A hub's name (``owner/model``) is the folder of its snapshot in Hugging Face's
cache (``HF_HOME``), downloaded when it is not there: commands that are given that folder read the same weights. On a
cluster the cache has to be on storage that all nodes see.
"""

from pathlib import Path

from recipe.checks.model import missing_parts

# The same weights in the formats of other programs.
OTHER_FORMATS = ["*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.pth", "onnx/*", "original/*"]


class ModelError(ValueError):
    """There is no such model; the message is for the user."""


def model_folder(name: str) -> Path:
    """The folder with configuration, tokenizer and weights of a model that is named by its folder or by the hub's name.

    Raises:
        ModelError: neither is there, or the folder is not complete.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = _snapshot(name)
    if missing := missing_parts(folder):
        raise ModelError(f"no complete model: {'; '.join(missing)}")
    return folder


def _snapshot(name: str) -> Path:
    if name.startswith(("/", ".", "~")) or name.count("/") != 1:
        raise ModelError(f"no such model folder: {name}; name a Hugging Face folder, or a hub's name (owner/model)")
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(name, ignore_patterns=OTHER_FORMATS))
    except Exception as error:  # the hub's client raises errors of several libraries
        raise ModelError(
            f"{name} is no folder here and could not be loaded from the Hugging Face hub "
            f"({type(error).__name__}: {' '.join(str(error).split())}); "
            "without a network, download it elsewhere and name its folder"
        ) from error
