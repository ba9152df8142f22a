"""A file of results by key, written as they come, so that an interrupted run goes on where it was."""

import json
from pathlib import Path
from typing import Any

from data_prep.json_lines import read_lines


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
