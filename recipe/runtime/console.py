"""Progress on the console: a bar on a terminal, a line every few seconds elsewhere.

It reads the JSON lines that the work itself writes, so it needs no separate channel and shows the same after a restart.
And a command as the user can type it there again.
"""

import math
import sys
import threading
import time
from collections import deque
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from recipe.records.run_directory import row_of
from recipe.runtime.visible import say

PHASES = {
    "start": "starting Ray",
    "build": "building the trainer, the actor and vLLM",
    "ready": "ready",
    "validate": "validating",
    "generate": "generating and verifying",
    "update": "updating the policy",
    "save": "saving a checkpoint",
}

# Without a new line for this long, the console shows a warning.
SILENCE_SECONDS = 240.0

CONSOLE = "skillcredit"  # [project.scripts] in pyproject.toml


class State(Protocol):
    """State of some work, from the lines that it has written so far."""

    step: int
    total: int

    def take(self, line: dict[str, Any]) -> str | None:
        """Update the state from one more line; return a warning for the user, if any."""

    def describe(self) -> str:
        """One line for the user."""


class StepClock:
    """Estimate of the remaining time, from the end times of the last steps."""

    def __init__(self) -> None:
        self.ended: deque[float] = deque(maxlen=11)

    def tick(self, time_seconds: float) -> None:
        self.ended.append(time_seconds)

    def left(self, steps: int) -> str:
        """Text for the time that these steps will take; empty before the first step has ended."""
        # A clock that was set back in between says nothing of that step; one that was set forward makes one step long.
        each = [end - start for start, end in pairwise(self.ended) if end >= start]
        return time_left(steps * median(each)) if each else ""


def time_left(seconds: float) -> str:
    """A remaining duration as text."""
    return f"about {seconds / 60:.1f} min left" if seconds >= 60 else f"about {seconds:.0f} s left"


class TrainingState:
    """A run of recipe.train, from its events.jsonl."""

    def __init__(self) -> None:
        self.phase, self.step, self.total = PHASES["start"], 0, 0
        self.accuracy: float | None = None
        self.reward: float | None = None
        self.trouble = ""
        self.clock = StepClock()

    def take(self, event: dict[str, Any]) -> str | None:
        kind = event["event"]
        self.phase = PHASES.get(kind, self.phase)
        if kind == "ready":
            self.step, self.total = event["step"], event["total_steps"]
            self.clock.tick(event["time"])
        elif kind == "step":
            self.step, self.reward = event["step"], event.get("reward")
            self.accuracy = self.accuracy if event.get("accuracy") is None else event["accuracy"]
            self.clock.tick(event["time"])
        elif kind == "validate":
            self.trouble = ""
        elif kind == "validation_shared":
            return f"validation before training: taken from {event['run']}, which began alike"
        elif kind == "report_failed":
            self.trouble = f"no report of step {event['step']}: {event['error']}"
        elif kind == "mixed_gpus":
            return (
                f"warning: the cluster's GPUs are of several kinds ({', '.join(event['kinds'])}), and verl does not "
                "choose among them: each step waits for the slowest, the smallest memory limits all, and equal seeds "
                "differ where a rank lands on another kind. Start Ray on nodes of one kind"
            )
        elif kind == "credit_failed":
            return (
                f"warning: in step {event['step']} credit failed for {event['samples']} of {event['wanted']} "
                f"samples: {event['reason']}"
            )
        elif kind == "failed_prompts":
            return (
                f"warning: step {event['step']} lacks answers of {event['prompts']} of {event['batch']} prompts, whose "
                "agent loop or reward raised an error: see logs/"
            )
        elif kind == "left_out":
            counts = ", ".join(f"{count} with {value}" for value, count in event["values"].items())
            return (
                f"warning: step {event['step']} has left out {event['groups']} groups whose answers all got the same "
                f"({counts}) and keeps drawing: see algorithm.filter_groups.max_num_gen_batches"
            )
        return None

    def describe(self) -> str:
        parts = [f"{self.step} of {self.total} steps done"] if self.total else []
        parts.append(self.phase)
        if self.reward is not None:
            parts.append(f"reward {self.reward:.2f}")
        if self.accuracy is not None:
            parts.append(f"validation accuracy {self.accuracy:.0%}")
        parts += [self.clock.left(self.total - self.step), self.trouble]
        return " | ".join(part for part in parts if part)


class SupervisedState:
    """A run of recipe.sft, from the metrics written by verl's trainer."""

    def __init__(self, total: int):
        self.step, self.total = 0, total
        self.loss: float | None = None
        self.clock = StepClock()

    def take(self, line: dict[str, Any]) -> None:
        self.step = line["step"]
        self.loss = line["data"].get("train/loss", self.loss)
        self.clock.tick(time.time())

    def describe(self) -> str:
        if self.loss is None:
            return "building the trainer"
        parts = [f"{self.step} of {self.total} steps done", f"loss {self.loss:.3f}"]
        parts.append(self.clock.left(self.total - self.step))
        return " | ".join(part for part in parts if part)


class EvaluationState:
    """An evaluation, from the samples that it writes; total 0: the number of samples is unknown."""

    def __init__(self, total: int, done: int = 0):
        self.step, self.total, self.earlier = done, total, done
        self.judged = self.accepted = 0
        self.started, self.ended = math.inf, 0.0

    def take(self, line: dict[str, Any]) -> None:
        self.step += 1
        self.started = min(self.started, line["answer"]["started"])
        self.ended = max(self.ended, line["answer"]["ended"])
        if line["reward"] is not None:
            self.judged += 1
            self.accepted += line["reward"]["acc"] == 1.0

    def describe(self) -> str:
        parts = [f"{self.step} of {self.total} samples" if self.total else f"{self.step} samples"]
        if self.judged:
            parts.append(f"{self.accepted / self.judged:.0%} accepted")
        if self.earlier < self.step < self.total:
            seconds_per_sample = (self.ended - self.started) / (self.step - self.earlier)
            parts.append(time_left((self.total - self.step) * seconds_per_sample))
        return " | ".join(parts)


class ProgressReporter:
    """Follow a file of JSON lines in a thread for the duration of the ``with`` block."""

    def __init__(self, lines: Path, state: State, line_every_seconds: float, stream: TextIO | None = None):
        self.lines = lines
        self.offset = lines.stat().st_size if lines.exists() else 0
        self.line_every_seconds = line_every_seconds
        self.console = Console(file=stream or sys.stdout)
        self.state = state
        self.last_line = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "ProgressReporter":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._take_new_lines()  # the last lines may hold a warning

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
                self._take_new_lines()
                progress.update(
                    task,
                    description=self.state.describe() + self._silence(),
                    total=self.state.total or None,
                    completed=self.state.step,
                )

    def _follow_with_lines(self) -> None:
        started = last = time.monotonic()
        while not self._stop.wait(0.5):
            self._take_new_lines()
            if time.monotonic() - last >= self.line_every_seconds:
                last = time.monotonic()
                say(self.console, f"[{last - started:5.0f} s] {self.state.describe()}{self._silence()}")

    def _silence(self) -> str:
        """A warning if the work has not written a line for long: verl waits forever for a dead engine."""
        seconds = time.monotonic() - self.last_line
        if seconds < SILENCE_SECONDS:
            return ""
        return f" | no news for {seconds / 60:.0f} min: if that is unusual, see logs/ray in the run directory"

    def _take_new_lines(self) -> None:
        if not self.lines.exists():
            return
        with open(self.lines, "rb") as file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # this line is still being written
                self.offset += len(line)
                row = row_of(line)  # none, if a full disk cut it off
                if row and (warning := self.state.take(row)):
                    say(self.console, warning)
                self.last_line = time.monotonic()


def program(command: str) -> str:
    """The command as the user can type it again: ``skillcredit NAME`` or ``python -m recipe.NAME``."""
    by_console = Path(*sys.orig_argv[1:2]).name == CONSOLE
    return f"{CONSOLE} {command}" if by_console else f"python -m recipe.{command}"
