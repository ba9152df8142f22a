"""JSON Lines files: a bad line costs that line only, and a journal of results by key survives an interruption."""

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
class Line:
    """One line that is not blank: its number (from 1), and either its object or the reason why there is none."""

    number: int
    value: dict[str, Any] | None
    reason: str = ""


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file, one at a time; blank ones are left out. Raises DataFileError when it can't be opened."""
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
                yield Line(number, None, f"the line is longer than {MAX_LINE_BYTES:,} bytes")
            elif raw.strip():
                yield _parsed(number, raw)


def _skip_the_rest(stream: BinaryIO) -> None:
    while (rest := stream.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def _parsed(number: int, raw: bytes) -> Line:
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Line(number, None, f"not UTF-8: byte {error.start} of the line ({error.reason})")
    except (ValueError, RecursionError) as error:
        return Line(number, None, f"not JSON: {error}")
    if not isinstance(value, dict):
        return Line(number, None, f"a JSON object was expected, found {type(value).__name__}")
    return Line(number, value)


def write_lines(path: Path, objects: Iterable[dict[str, Any]]) -> int:
    """Writes one object a line and returns how many; the file appears when it is complete."""
    count = 0
    with complete_file(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for value in objects:
            stream.write(json.dumps(value, ensure_ascii=False) + "\n")
            count += 1
    return count


class Journal:
    """The results that a file holds and those added since; a last line that an interruption cut is left out."""

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
        """Keeps a result that JSON can hold, on disk when this returns to whoever kills only this process."""
        self._known[key] = value
        self._stream.write(json.dumps({"key": key, "value": value}) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Closes the file, which stays."""
        self._stream.close()
