"""The runs below a folder: state, step, last metrics, and when each last wrote; the page that lists them.

A look reads what changed since the look before: of a run that wrote nothing only the times of its files, of one under
way the lines that it appended. A run that cannot be read is a row with the reason.
"""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from markupsafe import Markup

from recipe.health.record import clocks_differ, longest_quiet
from recipe.pages.facts import state
from recipe.pages.page_templates import environment, island, policy, source
from recipe.pages.run_files import (
    RECORDS,
    appended,
    ends,
    number,
    recorded_version,
    records,
    run_folders,
    run_id,
    signature,
)
from recipe.records.run_directory import REFUSED, RunDirectory
from recipe.records.versions import RecordsError, check_version
from recipe.runtime.visible import visible


@dataclass(frozen=True)
class RunRow:
    """One run of the list.

    id: its path below the folder. state: running, stopped (silent for too long), finished, failed, not started, or
    unreadable, with the reason in `note`. steps: how many it will do. accuracy: of the last step's own samples.
    reward: their mean. validation: the last mean accuracy over skills. started, wrote: seconds since the epoch.
    """

    id: str
    experiment: str
    name: str
    state: str
    note: str
    step: int
    steps: int | None
    accuracy: float | None
    reward: float | None
    validation: float | None
    started: float
    wrote: float


@dataclass
class _Progress:
    """Summary of a run's events so far, and how many of their bytes were read."""

    read: int = 0
    started: float | None = None
    last: Mapping[str, Any] = field(default_factory=dict)
    step: int = 0
    steps: int | None = None
    reward: float | None = None
    validation: float | None = None
    failure: str = ""
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=64))

    def add(self, event: dict[str, Any], end: int) -> None:
        """Take in the next row, which ends at this byte; one that is no event counts as read."""
        self.read = end
        if "event" not in event or event["event"] == REFUSED:
            return
        self.last = event | {"event": str(event["event"])[:100]}
        if self.started is None:
            self.started = number(event.get("time"))
        kind, step = event["event"], number(event.get("step"))
        if kind == "ready":
            steps = number(event.get("total_steps"))
            self.steps = None if steps is None else int(steps)
        elif kind == "failed":
            self.failure = str(event.get("error", ""))[:300]
        elif kind == "step" and step is not None:
            self.step, self.reward = int(step), number(event.get("reward"))
            accuracy, seconds = number(event.get("accuracy")), number(event.get("seconds"))
            self.validation = self.validation if accuracy is None else accuracy
            self.seconds.extend([] if seconds is None else [seconds])


class RunList:
    """The runs below a folder; safe to use from several threads."""

    def __init__(self, root: Path):
        self.root = root.resolve()
        self._watched: dict[str, _Watched] = {}
        self._lock = threading.Lock()

    def rows(self, now: float) -> list[RunRow]:
        """All runs, those that started last first. now: seconds since the epoch."""
        with self._lock:
            paths = {run_id(path, self.root): path for path in run_folders(self.root)}
            self._watched = {name: self._watched.get(name) or _Watched(path, self.root) for name, path in paths.items()}
            rows = [watched.row(name, now) for name, watched in self._watched.items()]
        return sorted(rows, key=lambda row: (-row.started, row.id))

    def row(self, name: str, now: float) -> tuple[RunDirectory, RunRow] | None:
        """The run with this id, if the last look found it: no other path is ever opened."""
        with self._lock:
            watched = self._watched.get(name)
            return (RunDirectory(watched.path), watched.row(name, now)) if watched else None


class _Watched:
    """One run, and what was read of it."""

    def __init__(self, path: Path, root: Path):
        self.path, self._root = path, root
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._progress = _Progress()
        self._accuracy: float | None = None
        self._first_validation: float | None = None
        self._error = ""

    def row(self, name: str, now: float) -> RunRow:
        try:
            seen = {file.name: signature(file) for file in records(self.path, self._root)}
            if seen != self._seen:
                self._read(seen)
            self._error = ""
        except (OSError, RecordsError, ValueError) as error:
            self._error = str(error)
        progress = self._progress
        times = [changed / 1e9 for changed, _, _ in self._seen.values()] or [_changed(self.path)]
        live, note = self._state(now)
        validation = self._first_validation if progress.validation is None else progress.validation
        return RunRow(
            id=name, experiment=visible(name.rpartition("/")[0]), name=visible(name.rpartition("/")[2]), state=live,
            note=visible(note), step=progress.step, steps=progress.steps, accuracy=self._accuracy,
            reward=progress.reward, validation=validation,
            started=max(times) if progress.started is None else progress.started, wrote=max(times),
        )  # fmt: skip

    def _read(self, seen: dict[str, tuple[int, int, int]]) -> None:
        """Read what changed; events from where the last look ended, unless the file is another one."""
        before = self._seen
        if "config.yaml" in seen and before.get("config.yaml") != seen["config.yaml"]:
            check_version(recorded_version(self.path / "config.yaml"), "it")
        if (events := seen.get("events.jsonl")) != (earlier := before.get("events.jsonl")):
            if not (events and earlier and events[2] == earlier[2] and events[1] >= self._progress.read):
                self._progress = _Progress()
            for end, event in appended(self.path / "events.jsonl", self._progress.read) if events else ():
                self._progress.add(event, end)
        if "metrics.jsonl" in seen and before.get("metrics.jsonl") != seen["metrics.jsonl"]:
            first, last = ends(self.path / "metrics.jsonl")
            self._accuracy = number(last.get("reward/acc"))
            self._first_validation = number(first.get("skill/mean/accuracy"))
        self._seen = seen

    def _state(self, now: float) -> tuple[str, str]:
        progress = self._progress
        if self._error:
            return "unreadable", self._error
        if missing := [file for file in RECORDS[:2] if file not in self._seen]:
            return "not started", f"it has no {' and no '.join(missing)}: it has not begun, or its folder is incomplete"
        live = state([progress.last] if progress.last else [])
        if live != "not finished":
            return live, progress.failure if live == "failed" else ""
        quiet = now - (number(progress.last.get("time")) or 0.0)
        if quiet <= longest_quiet(median(progress.seconds) if progress.seconds else None):
            return "running", clocks_differ(quiet)
        return "stopped", f"nothing after '{progress.last['event']}': killed? `run.name=` resumes it"


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0  # it was removed meanwhile


def list_page(folder: str, runs: Mapping[str, object]) -> tuple[str, str]:
    """The HTML of the list and its content security policy. runs: what ``/runs.json`` answers."""
    scripts = [source("list.js")]
    # A header, unlike a page, can also refuse to be shown within another site.
    allowed = policy(scripts, "connect-src 'self'", "form-action 'self'", "base-uri 'none'")
    text = (
        environment()
        .get_template("list.html.j2")
        .render(
            folder=folder,
            runs=island(runs),
            policy=allowed,
            style=Markup(source("run.css")),
            scripts=[Markup(script) for script in scripts],
        )
    )
    return text, f"{allowed}; frame-ancestors 'none'"
