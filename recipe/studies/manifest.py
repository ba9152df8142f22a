"""What a folder of results is made with, so that no folder mixes models, data or settings.

``FOLDER/study.json`` keeps a digest of each model (weights, tokenizer, chat template, configuration) and of each file,
and each setting. A claim adds names that are not in it; it is refused where a name has another digest, or where the
folder has results but no ``study.json``.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from data_prep.files import file_hash
from recipe.checks.model import weights_digest
from recipe.checks.model_folder import ModelError, model_folder
from recipe.records.run_directory import write_atomically

FILE = "study.json"

# Beside its weights, what of a model's folder decides what it answers.
OF_A_MODEL = ("config.json", "generation_config.json", "tokenizer*", "chat_template*", "vocab*", "merges*", "*.model")


class Entry(TypedDict):
    """What identifies a thing, and for the reader where it was found."""

    digest: str
    place: str


# Kind ("model", "data" or "setting") -> name -> what it is.
Entries = dict[str, dict[str, Entry]]
_ENTRIES: TypeAdapter[Entries] = TypeAdapter(Entries)


class StudyError(ValueError):
    """The folder was made with something else, or what is named is not there; the message is for the user."""


def claim(
    folder: Path,
    models: Mapping[str, str] | None = None,
    data: Mapping[str, Path] | None = None,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Record in `folder` what it is made with; it must agree with what was recorded before.

    models: name -> folder or hub's name. data: name -> file; of a YAML file the content counts, not its comments.

    Raises:
        StudyError: something differs from what is kept, or is not there, one line for each; or the folder has results
            of which nothing is kept. Nothing is written.
    """
    entries = _entries(models or {}, data or {}, settings or {})
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / FILE).exists() and (found := _results(folder)):
        raise StudyError(
            f"{folder} has {found[0]} and no {FILE} that says what it was made with; remove the folder, or use another"
        )
    with _alone(folder):
        kept = read(folder)
        if differing := list(_differences(kept, entries)):
            raise StudyError("\n".join(f"{folder} was made with {what}" for what in differing))
        merged = {kind: kept.get(kind, {}) | found for kind, found in entries.items()}
        if merged != kept:
            write_atomically(folder / FILE, json.dumps(merged, indent=2, ensure_ascii=False) + "\n")


def read(folder: Path) -> Entries:
    """What a folder is made with; empty if nothing is recorded. StudyError if the file cannot be read."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        return _ENTRIES.validate_json(path.read_bytes())
    except ValidationError as error:
        why = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise StudyError(f"{path} is damaged ({why}): restore it, or choose another folder") from error


def _results(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _entries(models: Mapping[str, str], data: Mapping[str, Path], settings: Mapping[str, str]) -> Entries:
    if gone := [str(path) for path in data.values() if not path.is_file()]:
        raise StudyError(f"no such file: {', '.join(gone)}")
    try:
        folders = {name: model_folder(model) for name, model in models.items()}
    except ModelError as error:
        raise StudyError(str(error)) from error
    return {
        "model": {name: {"digest": _model_digest(path), "place": models[name]} for name, path in folders.items()},
        "data": {name: {"digest": _file_digest(path), "place": str(path)} for name, path in data.items()},
        "setting": {name: {"digest": value, "place": value} for name, value in settings.items()},
    }


def _model_digest(folder: Path) -> str:
    files = sorted({path for pattern in OF_A_MODEL for path in folder.glob(pattern) if path.is_file()})
    parts = [weights_digest(folder), *(f"{path.name} {file_hash(path)}" for path in files)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _file_digest(path: Path) -> str:
    if path.suffix != ".yaml":
        return file_hash(path)[:16]
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]
    except (yaml.YAMLError, UnicodeDecodeError, TypeError) as error:
        raise StudyError(f"{path} is no readable YAML: {' '.join(str(error).split())}") from error


def _differences(kept: Entries, entries: Entries) -> Iterator[str]:
    advice = {
        "model": "use that model again, or another folder for the results",
        "data": "restore that file, or use another folder for the results",
        "setting": "use that setting again, or another folder for the results",
    }
    for kind, found in entries.items():
        for name, entry in found.items():
            before = kept.get(kind, {}).get(name, entry)
            if before["digest"] == entry["digest"]:
                continue
            there, here = (_described(kind, one) for one in (before, entry))
            yield f"another {kind} '{name}': {there} there, {here} here; {advice[kind]}"


def _described(kind: str, entry: Entry) -> str:
    return repr(entry["digest"]) if kind == "setting" else f"{entry['place']} ({entry['digest']})"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """A lock: parallel jobs of one study take turns."""
    with open(folder / f".{FILE}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
