"""One file of a study's finished runs: compressed JSON lines, the same bytes for the same runs.

The first line has the format, its version, and the settings that all runs share. Then one line per run: its name, the
version of its records, its other settings, its events and its report. Then one line per metric: for each run a value
per step (null if the step did not measure it), or null. Equal metrics beside each other compress best. Earlier files
have the metrics of a run in its line.
"""

import gzip
import json
import lzma
import os
import zlib
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.records.run_directory import RunDirectory, write_atomically
from recipe.records.versions import KEY, VERSION, RecordsError, check_version

SUFFIX = ".jsonl.xz"
EARLIER_SUFFIX = ".jsonl.gz"
"""Of files that were gzipped, which are still read and added to."""
# pb=0: digits of a text are at no multiple of four bytes, which the default expects; 2% smaller.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0}]
FORMAT = "verl-skillcredit runs"

# A configuration or part of one.
Config = dict[str, Any]


class KeptRun(RunDirectory):
    """A finished run in memory with the interface of a run directory. Its path has the run's name but need not exist.

    config: as recorded, in records of `version`. rows: metrics of each step. report: text of EXPERIMENT.md.
    """

    def __init__(
        self,
        path: Path,
        version: int,
        config: Config,
        events: Sequence[dict[str, Any]],
        rows: Sequence[dict[str, float]],
        report: str,
    ):
        super().__init__(path)
        self.version, self.config, self.report = version, config, report
        self._events, self._rows = list(events), list(rows)

    def recorded_config(self) -> tuple[DictConfig, int]:
        return OmegaConf.create(self.config), self.version

    def recorded_version(self) -> int:
        return self.version  # a configuration takes a sixth of a second to make

    def metrics(self) -> list[dict[str, float]]:
        return self._rows

    def events(self) -> list[dict[str, Any]]:
        return self._events

    def unpack(self, folder: Path) -> RunDirectory:
        """Write the run directory ``folder/<run name>``, its events last, which mark it as finished."""
        run = RunDirectory(folder / self.path.name)
        run.path.mkdir(parents=True, exist_ok=True)
        version = f"{KEY}: {self.version}\n" if self.version > 1 else ""
        texts = {
            "config.yaml": version + OmegaConf.to_yaml(OmegaConf.create(self.config)),
            "EXPERIMENT.md": self.report,
            "metrics.jsonl": _lines(self._rows),
            "events.jsonl": _lines(self._events),
        }
        for name, text in texts.items():
            write_atomically(run.path / name, text)
        return run


def is_file(path: Path) -> bool:
    """Whether the path names a file of kept runs rather than a folder of run directories."""
    return path.name.endswith((SUFFIX, EARLIER_SUFFIX))


def is_earlier(path: Path) -> bool:
    """Whether the path names a gzipped file."""
    return path.name.endswith(EARLIER_SUFFIX)


def write(path: Path, runs: Sequence[KeptRun]) -> None:
    """Write the file of these runs, sorted by name, atomically: readers never see a partial file."""
    common = reduce(_shared, [run.config for run in runs]) if runs else {}
    runs = sorted(runs, key=lambda run: run.path.name)
    lines: list[dict[str, Any]] = [{"format": FORMAT, "version": VERSION, "settings": _sorted(common)}]
    for run in runs:
        lines.append(
            {
                "name": run.path.name,
                "version": run.version,
                "settings": _sorted(_without(run.config, common)),
                "events": run.events(),
                "report": run.report,
            }
        )
    columns = [_columns(run.metrics()) for run in runs]
    metrics = sorted({name for column in columns for name in column})
    lines += [{"metric": name, "runs": [column.get(name) for column in columns]} for name in metrics]
    text = _lines(lines, separators=(",", ":")).encode()
    packed = gzip.compress(text, mtime=0) if is_earlier(path) else lzma.compress(text, filters=FILTERS)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(packed)
    partial.replace(path)


def read(path: Path) -> list[KeptRun]:
    """The runs of a file, by name.

    Raises:
        RecordsError: the file is missing, damaged, of another format or of a later version.
    """
    try:
        with (gzip if is_earlier(path) else lzma).open(path, "rt", encoding="utf-8") as file:
            head, *lines = [json.loads(line) for line in file]
    except OSError as error:
        raise RecordsError(f"{path} cannot be read: {error.strerror or error}") from error
    except (EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise RecordsError(f"{path} is not a file of kept runs, or is damaged: {error}") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise RecordsError(f"{path} is not a file of kept runs: its first line does not name the format '{FORMAT}'")
    try:
        check_version(head["version"], path)
        runs = [line for line in lines if "name" in line]
        columns: list[dict[str, Any]] = [dict(line.get("metrics", {})) for line in runs]
        for line in lines[len(runs) :]:
            for column, values in zip(columns, line["runs"], strict=True):
                column |= {} if values is None else {line["metric"]: values}
        return [_run(path, head["settings"], *each) for each in zip(runs, columns, strict=True)]
    except RecordsError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RecordsError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def _run(path: Path, common: Config, line: dict[str, Any], columns: dict[str, Any]) -> KeptRun:
    check_version(line["version"], f"{line['name']} in {path}")
    config = _merged(common, line["settings"])
    rows = _rows(columns)
    return KeptRun(path.parent / line["name"], line["version"], config, line["events"], rows, line["report"])


def _lines(rows: Sequence[Mapping[str, Any]], separators: tuple[str, str] | None = None) -> str:
    return "".join(json.dumps(row, ensure_ascii=False, separators=separators) + "\n" for row in rows)


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float | None]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _rows(columns: Mapping[str, Sequence[float | None]]) -> list[dict[str, float]]:
    """Raises ValueError for columns that are not lists of one value for each step."""
    steps = range(len(columns["step"]) if columns else 0)
    for name, values in columns.items():
        if not isinstance(values, list) or len(values) != len(steps):
            raise ValueError(f"{name} does not have one value for each of {len(steps)} steps")
    return [{name: value for name, values in columns.items() if (value := values[step]) is not None} for step in steps]


def _shared(one: Config, other: Config) -> Config:
    """The settings that two configurations share."""
    both: Config = {}
    for key in one.keys() & other.keys():
        if _are_groups(one[key], other[key]):
            both[key] = _shared(one[key], other[key])
        elif json.dumps(one[key]) == json.dumps(other[key]):  # 1, 1.0 and true are equal in Python
            both[key] = one[key]
    return both


def _without(config: Config, common: Config) -> Config:
    """The configuration without the common settings."""
    rest = {}
    for key, value in config.items():
        if key not in common:
            rest[key] = value
        elif _are_groups(value, common[key]) and (part := _without(value, common[key])):
            rest[key] = part
    return rest


def _merged(common: Config, rest: Config) -> Config:
    both = dict(common)
    for key, value in rest.items():
        both[key] = _merged(common[key], value) if key in common and isinstance(value, dict) else value
    return both


def _sorted(config: Config) -> Config:
    return {key: _sorted(value) if isinstance(value, dict) else value for key, value in sorted(config.items())}


def _are_groups(one: Any, other: Any) -> bool:
    return isinstance(one, dict) and isinstance(other, dict)
