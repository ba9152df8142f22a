"""JSON Lines files, in which a bad line costs only that line, and a journal of results that survives interruptions."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from data_prep.files import complete_file
from data_prep.schema import DataFileError

# Longer lines are skipped without being held in memory.
MAX_LINE_BYTES = 1 << 25


@dataclass(frozen=True)
class JsonLine:
    """One non-blank line: its number (from 1), and either its object or the reason why it has none."""

    number: int
    value: dict[str, Any] | None
    reason: str = ""


def read_lines(path: Path) -> Iterator[JsonLine]:
    """The non-blank lines of a file, one at a time. Raises DataFileError if the file cannot be opened."""
    try:
        stream = path.open("rb")
    except OSError as error:
        raise DataFileError(f"{path}: {error.strerror}") from error
    with stream:
        number = 0
        while raw := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
                _skip_the_rest(stream)
                yield JsonLine(number, None, f"the line is longer than {MAX_LINE_BYTES:,} bytes")
            elif raw.strip():
                yield _parsed(number, raw)


def _skip_the_rest(stream: BinaryIO) -> None:
    while (rest := stream.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def _parsed(number: int, raw: bytes) -> JsonLine:
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        return JsonLine(number, None, f"not UTF-8: byte {error.start} of the line ({error.reason})")
    except (ValueError, RecursionError) as error:
        return JsonLine(number, None, f"not JSON: {error}")
    if not isinstance(value, dict):
        return JsonLine(number, None, f"a JSON object was expected, found {type(value).__name__}")
    return JsonLine(number, value)


def read_array(path: Path) -> list[dict[str, Any] | str]:
    """The objects of a file that is one JSON array; the reason for an item that is none. Raises DataFileError."""
    try:
        items = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataFileError(f"{path}: not a readable JSON file ({error})") from error
    if not isinstance(items, list):
        raise DataFileError(f"{path}: a JSON array of objects was expected, found {type(items).__name__}")
    return [item if isinstance(item, dict) else f"an object was expected, found {item!r:.80}" for item in items]


def write_lines(path: Path, objects: Iterable[dict[str, Any]]) -> int:
    """Write one object per line and return their number; the file appears when it is complete."""
    count = 0
    with complete_file(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for value in objects:
            stream.write(json.dumps(value, ensure_ascii=False) + "\n")
            count += 1
    return count


class Journal:
    """A file of results by key, loaded on start and appended to; a last line cut by an interruption is skipped."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [line.value for line in read_lines(path) if line.value is not None] if path.exists() else []
        self._known: dict[str, Any] = {line["key"]: line["value"] for line in lines}
        self._stream = path.open("a", encoding="utf-8")
        self._stream.write("\n")

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> Any:
        return self._known[key]

    def add(self, key: str, value: Any) -> None:
        """Keep a JSON-serialisable result. On return it is flushed, and so survives a kill of this process."""
        self._known[key] = value
        self._stream.write(json.dumps({"key": key, "value": value}) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
