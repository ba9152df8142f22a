"""The folder of one run: configuration, metrics, events and artifacts.

Layout: ``config.yaml``, ``EXPERIMENT.md``, ``metrics.jsonl`` (one line a step), ``events.jsonl`` (one line a
event), ``generations/``, ``checkpoints/``, ``plots/``, ``logs/``.
"""

import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.records.versions import KEY, VERSION, take_version, upgraded

FOLDERS = ("generations", "checkpoints", "plots", "logs")


class RunDirectoryError(OSError):
    """The run's folder cannot be made or written."""


class RunDirectory:
    """Reads and writes the records of one run. Lines are appended and flushed, so a crash loses none of them."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    @classmethod
    def prepare(cls, root: str, experiment: str, name: str | None) -> "RunDirectory":
        """The folder ``root/experiment/name``, made if it is not there; ``name=None`` takes a new name from the time.

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
                "Choose another place with run.root=FOLDER, or make this one writable."
            ) from error
        return run

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def last_checkpoint(self) -> int | None:
        """The step of the newest complete checkpoint."""
        marker = self.checkpoints / "latest_checkpointed_iteration.txt"
        return int(marker.read_text()) if marker.exists() else None

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return any(event["event"] == "end" for event in self.events())

    def write_config(self, config: DictConfig) -> None:
        """Keep the resolved configuration; that of an earlier start of the same run stays beside it, numbered."""
        path = self.path / "config.yaml"
        if path.exists():
            earlier = len(list(self.path.glob("config.*.yaml")))
            path.rename(self.path / f"config.{earlier}.yaml")
        write_atomically(path, f"{KEY}: {VERSION}\n{OmegaConf.to_yaml(config, resolve=True)}")

    def recorded_config(self) -> tuple[DictConfig, int]:
        """The configuration as it was written, and the version of the records that it was written by."""
        config = OmegaConf.load(self.path / "config.yaml")
        assert isinstance(config, DictConfig)
        return config, take_version(config)

    def read_config(self) -> DictConfig:
        """The configuration in the terms of today's version; RecordsError where this release cannot read it."""
        return upgraded(*self.recorded_config(), where=self.path)

    def wandb_id(self) -> str:
        """The W&B id of this run, the same after every restart."""
        path = self.path / "wandb_id"
        if not path.exists():
            write_atomically(path, secrets.token_hex(8))
        return path.read_text().strip()

    def log_metrics(self, step: int, metrics: dict[str, Any]) -> None:
        """Append the numbers of a step; what is not a number is left out."""
        numbers = {key: float(value) for key, value in metrics.items() if _is_number(value)}
        self._append("metrics.jsonl", {"step": step, "time": time.time(), **numbers})

    def log_event(self, kind: str, **fields: Any) -> None:
        """Append an event: start of a phase, checkpoint, masked sample, error."""
        self._append("events.jsonl", {"time": time.time(), "event": kind, **fields})

    def log_generations(self, step: int, split: str, rows: Iterable[dict[str, Any]]) -> None:
        """Write samples with their reward components to ``generations/<split>_<step>.jsonl``."""
        text = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        write_atomically(self.path / "generations" / f"{split}_{step:06d}.jsonl", text)

    def metrics(self) -> list[dict[str, float]]:
        """One row a step, in order. Where a resumed run measured a step again, the later numbers stand."""
        by_step: dict[int, dict[str, float]] = {}
        for row in read_jsonl(self.path / "metrics.jsonl"):
            by_step[int(row["step"])] = row
        return [by_step[step] for step in sorted(by_step)]

    def events(self) -> list[dict[str, Any]]:
        return list(read_jsonl(self.path / "events.jsonl"))

    def _append(self, name: str, row: dict[str, Any]) -> None:
        with open(self.path / name, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSONL file; a last line cut by a crash is passed over, a missing file has none."""
    if not path.exists():
        return
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue


def write_atomically(path: Path, text: str) -> None:
    """Write under another name first: a reader, or a crash, never finds half a file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | str):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
