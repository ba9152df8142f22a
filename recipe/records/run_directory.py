"""The folder of one run: configuration, metrics, events and artifacts.

Layout: ``config.yaml``, ``EXPERIMENT.md``, ``metrics.jsonl`` (one line per step), ``events.jsonl`` (one line per
event), ``generations/``, ``checkpoints/``, ``plots/``, ``logs/``.
"""

import contextlib
import copy
import json
import math
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from recipe.records.versions import KEY, VERSION, RecordsError, take_version, upgraded

FOLDERS = ("generations", "checkpoints", "plots", "logs")
REFUSED = "refused"
"""The event of a start that preflight refused; it changes nothing of the run."""
STEP_TIME = "timing_s/step"
"""verl's metric of the seconds of a step."""
PROJECTION = "actor/projection"
"""The group of the metrics of skill-safe updates."""


class RunDirectoryError(OSError):
    """The run's folder cannot be created or written."""


class RunDirectory:
    """Reads and writes the records of one run. Each line is flushed when appended, so a crash loses none."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    @classmethod
    def prepare(cls, root: str, experiment: str, name: str | None) -> "RunDirectory":
        """Create the folder ``root/experiment/name`` if it is missing; ``name=None`` makes a new name from the time.

        Raises:
            RunDirectoryError: the folder cannot be written.
        """
        name = name or f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        run = cls(Path(root).absolute() / experiment / name)
        try:
            for folder in FOLDERS:
                (run.path / folder).mkdir(parents=True, exist_ok=True)
            probe = run.path / ".writable"
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write the run directory {run.path}: {error.strerror}. "
                "Choose another folder with run.root=FOLDER, or make this one writable."
            ) from error
        return run

    @classmethod
    def existing(cls, path: str | os.PathLike[str]) -> "RunDirectory":
        """The run directory at a path; RecordsError if there is none, or it is cut off."""
        run = cls(path)
        if not (run.path / "config.yaml").exists():
            raise RecordsError(
                f"{run.path} is not a run directory: it has no config.yaml (outputs/EXPERIMENT/RUN has one)"
            )
        config = run.read_config()
        needed = ("actor_rollout_ref", "data", "run")
        if missing := {key for key in needed if not isinstance(config.get(key), DictConfig)}:
            raise RecordsError(f"{run.path / 'config.yaml'} is cut off: it has no {', '.join(sorted(missing))}")
        return run

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def last_checkpoint(self) -> int | None:
        """Step of the newest complete checkpoint; None without one."""
        if not self._marker.exists():
            return None
        text = self._marker.read_text().strip()
        if text.isdecimal():
            return int(text)
        # verl opens the marker once the newest checkpoint is whole: a kill, or a full disk, then leaves it empty.
        folders = self.checkpoints.glob("global_step_*")
        return max((int(one.name.removeprefix("global_step_")) for one in folders), default=None)

    def repair_marker(self) -> None:
        """Write the step of the newest complete checkpoint where verl reads it, which expects a number or no file."""
        if (step := self.last_checkpoint) is None:
            self._marker.unlink(missing_ok=True)
        else:
            write_atomically(self._marker, str(step))

    @property
    def _marker(self) -> Path:
        return self.checkpoints / "latest_checkpointed_iteration.txt"

    @property
    def finished(self) -> bool:
        """Whether the run ended normally (it logged the event ``end``)."""
        return any(event["event"] == "end" for event in self.events())

    def write_config(self, config: DictConfig) -> None:
        """Write the resolved configuration; those of earlier starts are kept as ``config.<number>.yaml``."""
        path = self.path / "config.yaml"
        if path.exists():
            earlier = len(list(self.path.glob("config.*.yaml")))
            path.rename(self.path / f"config.{earlier}.yaml")
        write_atomically(path, f"{KEY}: {VERSION}\n{OmegaConf.to_yaml(config, resolve=True)}")

    def recorded_config(self) -> tuple[DictConfig, int]:
        """The configuration as written, and the version of its records; RecordsError if it is none."""
        path = self.path / "config.yaml"
        status = path.stat()
        try:
            config = copy.deepcopy(_loaded(path, status.st_mtime_ns, status.st_size, status.st_ino))
            return config, take_version(config)
        except (OSError, OmegaConfBaseException, TypeError, ValueError, YAMLError) as error:
            raise RecordsError(f"{path} is no configuration of a run: {str(error).partition(chr(10))[0]}") from error

    def recorded_version(self) -> int:
        """The version of the run's records; RecordsError as in `recorded_config`."""
        return self.recorded_config()[1]

    def read_config(self) -> DictConfig:
        """The configuration, upgraded to the current version; RecordsError if this release cannot read it."""
        return upgraded(*self.recorded_config(), where=self.path)

    def wandb_id(self) -> str:
        """The W&B id of this run, the same after every restart."""
        path = self.path / "wandb_id"
        if not path.exists():
            write_atomically(path, secrets.token_hex(8))
        return path.read_text().strip()

    def log_metrics(self, step: int, metrics: dict[str, Any]) -> dict[str, float]:
        """Append the metrics of a step, and return this row; values that are not numbers are left out."""
        row = {"step": step, "time": time.time(), **numbers(metrics)}
        self._append("metrics.jsonl", row)
        return row

    def log_event(self, kind: str, **fields: Any) -> None:
        """Append an event, such as the start of a phase, a checkpoint, a masked sample or an error."""
        self._append("events.jsonl", {"time": time.time(), "event": kind, **fields})

    def refuse(self, why: str) -> None:
        """Record that a start was refused; a run without any record leaves no folder."""
        if (self.path / "events.jsonl").exists():
            self.log_event(REFUSED, why=why)
            return
        with contextlib.suppress(OSError):  # a folder with something in it stays
            for folder in (*FOLDERS, "."):
                (self.path / folder).resolve().rmdir()

    def log_before_end(self, kind: str, **fields: Any) -> None:
        """Add an event to a run that has ended, before its last one, from which readers take the run's state."""
        path = self.path / "events.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines()
        row = {"time": time.time(), "event": kind, **fields}
        lines.insert(max(len(lines) - 1, 0), json.dumps(row, ensure_ascii=False, default=str))
        write_atomically(path, "\n".join(lines) + "\n")

    def log_generations(self, step: int, split: str, rows: Iterable[dict[str, Any]]) -> None:
        """Write samples with their reward components to ``generations/<split>_<step>.jsonl``."""
        text = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        write_atomically(self.path / "generations" / f"{split}_{step:06d}.jsonl", text)

    def metrics(self) -> list[dict[str, float]]:
        """The numbers of each step, in order. If a resumed run repeated a step, its later row counts."""
        by_step: dict[int, dict[str, float]] = {}
        for row in read_jsonl(self.path / "metrics.jsonl"):
            found = {key: value for key, value in row.items() if type(value) is float or _fits_a_float(value)}
            if math.isfinite(found.get("step", math.nan)):
                by_step[int(found["step"])] = found
        return [by_step[step] for step in sorted(by_step)]

    def events(self) -> list[dict[str, Any]]:
        rows = read_jsonl(self.path / "events.jsonl")
        return [row for row in rows if type(row.get("event")) is str and type(row.get("time", 0.0)) in (int, float)]

    def _append(self, name: str, row: dict[str, Any]) -> None:
        line = json.dumps(row, ensure_ascii=False, default=str) + "\n"
        with open(self.path / name, "ab+") as file:
            # A line that a crash cut off would swallow this one.
            if file.tell() and file.seek(-1, os.SEEK_END) and file.read(1) != b"\n":
                line = f"\n{line}"
            file.write(line.encode("utf-8", "backslashreplace"))


@lru_cache(maxsize=16)
def _loaded(path: Path, *state: int) -> DictConfig:
    """The configuration in a file, parsed once while its `state` stays: YAML takes a second for what a page reads."""
    config = OmegaConf.load(path)
    if not isinstance(config, DictConfig):
        raise TypeError("it holds a list")
    OmegaConf.resolve(config)  # a run writes it resolved
    return config


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The values that are numbers, as floats."""
    return {key: float(value) for key, value in metrics.items() if _is_number(value)}


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a JSONL file, without lines cut off by a crash; none if the file is missing."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        yield from filter(None, map(row_of, file))


def row_of(line: bytes | str) -> dict[str, Any]:
    """A line's JSON object; empty if it is something else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def write_atomically(path: Path, text: str) -> None:
    """Write to a temporary name and rename, so that neither readers nor a crash leave a partial file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        # Half a character, which a model's program can make and UTF-8 cannot hold, becomes JSON's escape.
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
        partial.replace(path)
    except OSError:  # a full disk gets no fuller
        partial.unlink(missing_ok=True)
        raise


def _fits_a_float(value: Any) -> bool:
    return type(value) is int and abs(value) < 1 << 1000


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | str):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
