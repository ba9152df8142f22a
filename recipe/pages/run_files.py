"""Files of run directories below a folder that others may write into: found, checked, and read in part.

Whoever can write there can name and fill runs as they like, so no link out of the folder is followed, no pipe is
opened, and a line may be anything.
"""

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recipe.records.run_directory import FOLDERS, row_of
from recipe.records.versions import KEY, RecordsError

RECORDS = ("config.yaml", "events.jsonl", "metrics.jsonl")
"""Files that a page reads, beside ``generations/``."""
_LONGEST = 1 << 20
"""Bytes at either end of a file in which a row is looked for."""
_HEAD = 4096
_VERSION = re.compile(rf"^{KEY}: *(\d+) *$", re.MULTILINE)


def run_folders(root: Path) -> Iterator[Path]:
    """Folders below the root that hold a run, by what is in them; no link is followed, no hidden folder entered."""
    for path, folders, files in os.walk(root):
        if path != str(root) and (
            {"events.jsonl", "metrics.jsonl"} & set(files)
            or set(FOLDERS) <= set(folders)
            or ("config.yaml" in files and "generations" in folders)
        ):
            folders.clear()
            yield Path(path)
        folders[:] = [name for name in folders if not name.startswith(".")]


def run_id(path: Path, root: Path) -> str:
    """The run's path below the root, as text that any URL and JSON can carry."""
    return os.fsencode(path.relative_to(root).as_posix()).decode("utf-8", "backslashreplace")


def records(run: Path, root: Path) -> Iterator[Path]:
    """The files of a run that the list reads, of those that it has.

    Raises:
        RecordsError: one is not a regular file, or a link that leads out of the root.
    """
    for file in (run / name for name in RECORDS):
        if os.path.lexists(file):
            yield inside(file, root)


def page_files(run: Path, root: Path) -> Iterator[Path]:
    """The files of a run that its page reads; raises RecordsError as `records` does."""
    if run.resolve() != run:
        raise RecordsError("its folder has become a link")
    yield from records(run, root)
    folder = run / "generations"
    if folder.is_symlink():
        raise RecordsError("generations is a link: the list follows none")
    yield from (inside(file, root) for file in sorted(folder.glob("train_*.jsonl")))


def inside(file: Path, root: Path) -> Path:
    """The file itself; RecordsError if it is a link out of the root, or not a regular file (a pipe would never end)."""
    if file.is_symlink() and not file.resolve().is_relative_to(root):
        raise RecordsError(f"{file.name} is a link that leads out of the folder")
    if not file.is_file():
        raise RecordsError(f"{file.name} is not a regular file")
    return file


def signature(file: Path) -> tuple[int, int, int]:
    """Time of the last change (ns), size and number of a file: equal ones mean equal content."""
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def recorded_version(config: Path) -> int:
    """The version of a configuration's records, from its head: to parse the whole takes a fifth of a second."""
    with open(config, encoding="utf-8", errors="replace") as file:
        match = _VERSION.search(file.read(_HEAD))
    return int(match[1]) if match else 1


def appended(file: Path, start: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a JSONL file from this byte on, each with the byte at its end; a line still being written waits."""
    with open(file, "rb") as lines:
        lines.seek(start)
        for line in lines:
            if not line.endswith(b"\n"):
                return
            start += len(line)
            yield start, row_of(line)


def ends(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first and the last complete row of a JSONL file; empty without one."""
    with open(file, "rb") as lines:
        first, size, last = lines.readline(_LONGEST), os.fstat(lines.fileno()).st_size, b""
        for reach in (_LONGEST >> 4, _LONGEST):
            lines.seek(max(0, size - reach))
            before, _, last = lines.read(reach).rpartition(b"\n")[0].rpartition(b"\n")
            if before or reach >= size:
                break
    return row_of(first), row_of(last)


def number(value: Any) -> float | None:
    """A finite number as float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 and math.isfinite(value) else None
