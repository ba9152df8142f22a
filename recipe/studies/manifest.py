"""Inputs of a folder of results, so that no folder mixes models, data or settings.

``FOLDER/study.json`` records a digest of each model (weights, tokenizer, chat template, configuration) and of each
file, and each setting. A claim adds new names. It is refused, without changes, if a recorded name has another value, or
if the folder has results but no record.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from data_prep.files import file_hash
from data_prep.made_from import alone
from recipe.checks.model import ModelError, model_folder
from recipe.records.digests import model_digest
from recipe.records.run_directory import write_atomically

FILE = "study.json"
VERSION = 1
"""Of the record; one without the number has version 1."""


class Entry(TypedDict):
    """Digest of an input and, for the reader, its location."""

    digest: str
    place: str


# Kind ("model", "data" or "setting") -> name -> entry.
Entries = dict[str, dict[str, Entry]]
_ENTRIES: TypeAdapter[Entries] = TypeAdapter(Entries)
_RECORD: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


class StudyError(ValueError):
    """The folder was made with other inputs, or an input is missing; the message addresses the user."""


def claim(
    folder: Path,
    models: Mapping[str, str] | None = None,
    data: Mapping[str, Path] | None = None,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Record the inputs of the results in `folder`; they must agree with those recorded before.

    models: name -> folder or hub name. data: name -> file; for a YAML file only the content counts, not comments.

    Raises:
        StudyError: inputs differ from the record or are missing, one line each; or the folder has results but no
            record. Nothing is written then.
    """
    entries = _entries(models or {}, data or {}, settings or {})
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / FILE).exists() and (found := _results(folder)):
        raise StudyError(
            f"{folder} has {found[0]} but no {FILE} that says what it was made with; remove the folder or use another"
        )
    with alone(folder, folder / f".{FILE}.lock"):
        kept = read(folder)
        if differing := list(_differences(kept, entries)):
            raise StudyError("\n".join(f"{folder} was made with {difference}" for difference in differing))
        merged = {kind: kept.get(kind, {}) | found for kind, found in entries.items()}
        if merged != kept:
            record = {"version": VERSION, **merged}
            write_atomically(folder / FILE, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def read(folder: Path) -> Entries:
    """Recorded inputs of a folder; empty without a record. StudyError if the record cannot be read."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        record = _RECORD.validate_json(path.read_bytes())
        version = record.pop("version", 1)
        if version != VERSION:
            raise StudyError(f"{path} has version {version}; this release reads version {VERSION}: use a later one")
        return _ENTRIES.validate_python(record)
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise StudyError(f"{path} is damaged ({reason}): restore it or choose another folder") from error


def _results(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _entries(models: Mapping[str, str], data: Mapping[str, Path], settings: Mapping[str, str]) -> Entries:
    if missing := [str(path) for path in data.values() if not path.is_file()]:
        raise StudyError(f"no such file: {', '.join(missing)}")
    try:
        folders = {name: model_folder(model) for name, model in models.items()}
    except ModelError as error:
        raise StudyError(str(error)) from error
    return {
        "model": {name: {"digest": model_digest(path), "place": models[name]} for name, path in folders.items()},
        "data": {name: {"digest": _file_digest(path), "place": str(path)} for name, path in data.items()},
        "setting": {name: {"digest": value, "place": value} for name, value in settings.items()},
    }


def _file_digest(path: Path) -> str:
    if path.suffix != ".yaml":
        return file_hash(path)[:16]
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]
    except (yaml.YAMLError, UnicodeDecodeError, TypeError) as error:
        raise StudyError(f"{path} is not readable YAML: {' '.join(str(error).split())}") from error


def _differences(kept: Entries, entries: Entries) -> Iterator[str]:
    advice = {
        "model": "use that model again or another folder for the results",
        "data": "restore that file or use another folder for the results",
        "setting": "use that setting again or another folder for the results",
    }
    for kind, found in entries.items():
        for name, entry in found.items():
            before = kept.get(kind, {}).get(name, entry)
            if before["digest"].split() == entry["digest"].split():  # the blanks of a setting do not count
                continue
            there, here = (_described(kind, one) for one in (before, entry))
            yield f"another {kind} '{name}': recorded {there}, now {here}; {advice[kind]}"


def _described(kind: str, entry: Entry) -> str:
    return repr(entry["digest"]) if kind == "setting" else f"{entry['place']} ({entry['digest']})"
