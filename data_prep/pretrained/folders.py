"""A model's Hugging Face folder: its description, and the checks of a folder that is used as it is."""

import contextlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_prep.files import complete_file, file_hash
from data_prep.pretrained import PretrainedError

DESCRIPTION = "pretrained.json"
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


@dataclass(frozen=True)
class Description:
    """What a model is and where it came from.

    origin: facts that identify the source (package and version or file, SHA-256). files: SHA-256 by name.
    """

    name: str
    architecture: str
    parameters: int
    licence: str
    origin: dict[str, str]
    files: dict[str, str] = field(default_factory=dict)
    made_with: dict[str, str] = field(default_factory=dict)

    def lines(self) -> str:
        """The description for people."""
        came_from = ", ".join(f"{key} {value}" for key, value in self.origin.items())
        weights = [
            f"{name} {digest}" for name, digest in self.files.items() if Path(name).suffix in (".safetensors", ".bin")
        ]
        return "\n".join(
            [
                f"{self.name}: {self.architecture}, {self.parameters:,} parameters",
                f"licence: {self.licence}",
                f"from: {came_from}",
                f"SHA-256: {', '.join(weights)}",
            ]
        )


def write_description(folder: Path, description: Description) -> None:
    """Write the description beside the weights."""
    with complete_file(folder / DESCRIPTION) as path:
        path.write_text(json.dumps(asdict(description), indent=2) + "\n")


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a folder except the description, by name."""
    return {
        path.name: file_hash(path) for path in sorted(folder.iterdir()) if path.is_file() and path.name != DESCRIPTION
    }


def made_before(folder: Path, origin: dict[str, str]) -> Description | None:
    """The description of a folder that was made from this origin; None if there is no folder, or an empty one.

    Raises PretrainedError if the folder is something else, or its files were changed.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    other = "remove it or choose another --out"
    try:
        description = Description(**json.loads((folder / DESCRIPTION).read_text()))
        stated = dict(description.files)
    except (OSError, ValueError, TypeError) as error:
        raise PretrainedError(f"{folder} exists and was not made by this command; {other}") from error
    if description.origin != origin:
        raise PretrainedError(f"{folder} holds another model ({description.name}, from {description.origin}); {other}")
    digests = hashes(folder)
    if changed := sorted(name for name, digest in stated.items() if digests.get(name) != digest):
        raise PretrainedError(f"{folder}: {', '.join(changed)} changed after the conversion; {other}")
    return description


def check_folder(folder: Path) -> Description:
    """The description of a complete Hugging Face folder of an instruct model; raises PretrainedError for any other."""
    if not folder.is_dir():
        raise PretrainedError(f"{folder}: no such folder")
    fix = "save model and tokenizer there with save_pretrained"
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise PretrainedError(f"{folder}: no readable config.json; {fix}") from error
    weights = [path for pattern in WEIGHTS for path in sorted(folder.glob(pattern))]
    if not weights:
        raise PretrainedError(f"{folder}: no weights ({' or '.join(WEIGHTS)}); {fix}")
    for index in folder.glob("*.index.json"):
        try:
            parts = set(json.loads(index.read_text())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PretrainedError(f"{index}: no readable list of weights; {fix}") from error
        if missing := sorted(parts - {path.name for path in weights}):
            raise PretrainedError(f"{folder}: {', '.join(missing)} of {index.name} are missing; copy them there")
    _require_chat_template(folder)
    return Description(
        name=folder.resolve().name,
        architecture=", ".join(config.get("architectures") or [str(config.get("model_type", "unknown"))]),
        parameters=_parameters(weights),
        licence=_licence(folder),
        origin={"folder": str(folder)},
        files={path.name: file_hash(path) for path in weights},
    )


def _require_chat_template(folder: Path) -> None:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers raises errors of many kinds
        raise PretrainedError(f"{folder}: the tokenizer does not load ({type(error).__name__}: {error})") from error
    if not tokenizer.chat_template:
        raise PretrainedError(f"{folder}: the tokenizer has no chat template; take an instruct version of the model")


def _parameters(weights: list[Path]) -> int:
    """Stored numbers of safetensors files, from their headers; 0 for other formats, which would have to be loaded."""
    from math import prod

    from safetensors import safe_open

    total = 0
    for path in weights:
        if path.suffix != ".safetensors":
            continue
        try:
            with safe_open(path, "pt") as stored:
                total += sum(prod(stored.get_slice(name).get_shape()) for name in stored.keys())  # noqa: SIM118
        except Exception as error:  # safetensors has its own error class without a base of ours
            raise PretrainedError(f"{path}: not a readable safetensors file ({error}); copy it again") from error
    return total


def _licence(folder: Path) -> str:
    """The licence as this command's description or the front matter of the model card states it."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return str(json.loads((folder / DESCRIPTION).read_text())["licence"])
    card = folder / "README.md"
    lines = card.read_text(errors="replace").splitlines()[:60] if card.is_file() else []
    stated = [line.partition(":")[2].strip() for line in lines if line.startswith("license:")]
    return stated[0] if stated else "not stated; see the model's page"
