"""What the user sees while a run goes on: a bar on a terminal, a line every few seconds elsewhere.

Reads the run's event log, which the trainer writes; so it needs no channel of its own and shows the same after
a restart.
"""

import json
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

PHASES = {
    "start": "starting Ray",
    "build": "building the trainer, the actor and vLLM",
    "ready": "ready",
    "validate": "validating",
    "generate": "generating and verifying",
    "update": "updating the policy",
    "save": "saving a checkpoint",
}


class Progressing:
    """The state of a run as far as its events tell it."""

    def __init__(self) -> None:
        self.phase, self.step, self.total = PHASES["start"], 0, 0
        self.accuracy: float | None = None
        self.reward: float | None = None
        self.ended: deque[float] = deque(maxlen=11)

    def take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        self.phase = PHASES.get(kind, self.phase)
        if kind == "ready":
            self.step, self.total = event["step"], event["total_steps"]
            self.ended.append(event["time"])
        elif kind == "step":
            self.step, self.reward = event["step"], event.get("reward")
            self.accuracy = event.get("accuracy") or self.accuracy
            self.ended.append(event["time"])

    def seconds_left(self) -> float | None:
        """From the mean duration of the last ten steps; None before the first."""
        if len(self.ended) < 2:
            return None
        mean = (self.ended[-1] - self.ended[0]) / (len(self.ended) - 1)
        return mean * (self.total - self.step)

    def describe(self) -> str:
        parts = [f"step {self.step}/{self.total}"] if self.total else []
        parts.append(self.phase)
        if self.reward is not None:
            parts.append(f"reward {self.reward:.2f}")
        if self.accuracy is not None:
            parts.append(f"validation accuracy {self.accuracy:.0%}")
        left = self.seconds_left()
        if left is not None:
            parts.append(f"about {left / 60:.1f} min left" if left >= 60 else f"about {left:.0f} s left")
        return " | ".join(parts)


class ProgressReporter:
    """Follows an event log in a thread for as long as the ``with`` block lasts."""

    def __init__(self, events: Path, line_every_seconds: float, stream: TextIO | None = None):
        self.events = events
        self.offset = events.stat().st_size if events.exists() else 0
        self.line_every_seconds = line_every_seconds
        self.console = Console(file=stream or sys.stdout)
        self.state = Progressing()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "ProgressReporter":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _follow(self) -> None:
        if self.console.is_terminal:
            self._follow_with_bar()
        else:
            self._follow_with_lines()

    def _follow_with_bar(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            task = progress.add_task(self.state.describe(), total=None)
            while not self._stop.wait(0.3):
                self._take_new_events()
                progress.update(
                    task,
                    description=self.state.describe(),
                    total=self.state.total or None,
                    completed=self.state.step,
                )

    def _follow_with_lines(self) -> None:
        started = last = time.monotonic()
        while not self._stop.wait(0.5):
            self._take_new_events()
            if time.monotonic() - last >= self.line_every_seconds:
                last = time.monotonic()
                self.console.print(f"[{last - started:5.0f} s] {self.state.describe()}", markup=False, soft_wrap=True)

    def _take_new_events(self) -> None:
        if not self.events.exists():
            return
        with open(self.events, "rb") as file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # the trainer is still writing it
                self.offset += len(line)
                self.state.take(json.loads(line))
