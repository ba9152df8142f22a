"""Tasks for tests, and files of them."""

import json
from pathlib import Path
from typing import Any

from data_prep.tasks import Task


def fields(number: int = 0, **changes: Any) -> dict[str, Any]:
    """What a line of a task file holds."""
    return {
        "id": f"own/{number}",
        "source": "own",
        "split": "train",
        "role": "train",
        "skill": "write",
        "verifier": "code",
        "prompt": f"Write add{number}(a, b), the sum of its arguments.",
        "ground_truth": {"tests": [f"assert add{number}(1, 2) == 3"]},
        "solution": f"def add{number}(a, b):\n    return a + b",
        "licence": "cc0-1.0",
    } | changes


def task(number: int = 0, **changes: Any) -> Task:
    """A task."""
    return Task.model_validate(fields(number, **changes))


def write_lines(path: Path, *lines: dict[str, Any] | str | bytes) -> Path:
    """A file of these lines: objects as JSON, text and bytes as they are."""
    raw = [line if isinstance(line, bytes) else _text(line).encode() for line in lines]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path


def _text(line: dict[str, Any] | str) -> str:
    return line if isinstance(line, str) else json.dumps(line)
