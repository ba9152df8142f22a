"""What is wrong with a run that was disturbed, judged from its records alone; each check can fail."""

import math
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EQUAL = ("critic/score/mean", "response_length/mean", "actor/entropy", "actor/grad_norm", "credit/advantage_shift")
"""Metrics of every step that must have the undisturbed run's values, to the last bit."""
VALIDATED = ("skill/mean/accuracy", "skill/mean/greedy_accuracy")
"""The same for steps that the undisturbed run validated: they depend on the weights after the last update."""

CAUSES = {
    "command": "",  # it cannot report its own SIGKILL
    "task runner": r"TaskRunner",
    "actor": r"WorkerDict",
    "engine": r"vLLM's engine died|EngineCore|EngineDead",
    "reward worker": r"RewardLoopWorker",
    "sandbox": r"[Ss]andbox",
    "raylet": r"[Rr]aylet|\b[Nn]ode\b.*\b(died|dead)\b",
}
"""Of each victim what a message that names it contains (a regular expression)."""
# Names that say nothing of a cause: a folder's, and those that Ray puts before each line that a process prints.
_NO_CAUSE = re.compile(r"\S*/\S*|\([\w:]+ pid=\d+[^)]*\)")


@dataclass(frozen=True)
class Kill:
    """One SIGKILL. process: name of the victim; time: in seconds since the epoch; step: the newest with metrics then.

    died: whether the process, alive before, was gone afterwards.
    """

    pid: int
    process: str
    time: float
    step: int
    died: bool


@dataclass(frozen=True)
class Attempt:
    """One start of the command.

    status: its exit status, None if it had to be stopped; message: all that it wrote after the kill (output of both
    kinds, failures in its events); ready: the step that it began after, None if it never got ready; recorded: the
    newest step with metrics at its end; checkpoint: the last complete one then, 0 without; left: what stayed behind.
    """

    status: int | None
    message: str
    ready: int | None
    recorded: int
    checkpoint: int
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """A run with one kill. seed and number: of the draw; attempts: one, or two if the command had to be repeated;
    different: what its numbers have that the undisturbed run's have not."""

    seed: int
    number: int
    victim: str
    kill: Kill | None
    attempts: tuple[Attempt, ...]
    different: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Trial":
        """A trial from `dataclasses.asdict` of it, also by way of JSON."""
        kill = Kill(**row["kill"]) if row["kill"] else None
        attempts = tuple(Attempt(**one | {"left": tuple(one["left"])}) for one in row["attempts"])
        return cls(**dict(row) | {"kill": kill, "attempts": attempts, "different": tuple(row["different"])})

    @property
    def survived(self) -> bool:
        return self.attempts[0].status == 0


def wrong(trial: Trial, saved_every: int) -> list[str]:
    """Everything that is wrong with a trial. saved_every: steps between checkpoints."""
    left = (f"start {number}: left {name}" for number, one in enumerate(trial.attempts, 1) for name in one.left)
    return [*_kill(trial), *_end(trial), *_restart(trial), *_lost(trial, saved_every), *left, *trial.different]


def _kill(trial: Trial) -> Iterator[str]:
    if trial.kill is None:
        yield f"nothing was tested: no {trial.victim} to kill"
    elif not trial.kill.died:
        yield f"{trial.kill.process} ({trial.kill.pid}) survived SIGKILL"


def names_cause(message: str, victim: str) -> bool:
    """Whether a message says by itself that this victim died: in no path, and in no prefix that Ray gives a line."""
    return bool(re.search(CAUSES[victim], _NO_CAUSE.sub("", message)))


def _end(trial: Trial) -> Iterator[str]:
    """A first start that failed must name the cause; a killed command must have ended by the kill."""
    first = trial.attempts[0]
    if first.status is None:
        yield "start 1 did not end"
    elif trial.victim == "command" and trial.kill and first.status != -signal.SIGKILL:
        yield f"the killed command ended with {first.status}"
    elif first.status and not names_cause(first.message, trial.victim):
        yield f"its message does not name the {trial.victim}: {first.message.strip()[-300:] or 'it has none'}"


def _restart(trial: Trial) -> Iterator[str]:
    if trial.survived:
        return
    if len(trial.attempts) < 2:
        yield "it was not started again"
    elif (status := trial.attempts[1].status) != 0:
        yield "start 2 did not end" if status is None else f"start 2 ended with {status}"


def _lost(trial: Trial, saved_every: int) -> Iterator[str]:
    """A checkpoint precedes the metrics of its step, and the next start begins after the last checkpoint."""
    for number, one in enumerate(trial.attempts, 1):
        due = one.recorded // saved_every * saved_every
        if one.checkpoint < due:
            yield f"start {number} recorded step {one.recorded}, but its last checkpoint is of step {one.checkpoint}"
    for number, (before, after) in enumerate(zip((None, *trial.attempts), trial.attempts, strict=False), 1):
        expected = before.checkpoint if before else 0
        if after.ready is None and after.status == 0:
            yield f"start {number} has no record of the step that it began after"
        elif after.ready is not None and after.ready != expected:
            yield f"start {number} began after step {after.ready}, not {expected}, the last checkpoint"


def differences(rows: Iterable[Mapping[str, float]], alone: Sequence[Mapping[str, float]]) -> list[str]:
    """How the metrics of a run differ from the undisturbed run's: steps that only one has, the first other number.

    rows: one per step that was trained, a repeated one too.
    """
    expected = {int(row["step"]): row for row in alone}
    found, seen = [], set()
    for row in rows:
        step = int(row["step"])
        seen.add(step)
        if step in expected and (other := _first_difference(row, expected[step])):
            found.append(f"step {step}: {other}")
    found = found[:1]
    found += [f"lacks step {step}" for step in sorted(expected.keys() - seen)]
    return found + [f"has step {step}, which the undisturbed run has not" for step in sorted(seen - expected.keys())]


def _first_difference(row: Mapping[str, float], alone: Mapping[str, float]) -> str | None:
    for key in (*EQUAL, *(key for key in VALIDATED if key in alone)):
        if not math.isfinite(alone.get(key, math.nan)):
            return f"the undisturbed run has no {key} to compare"
        if row.get(key) != alone[key]:
            return f"{key} {row.get(key)}, not {alone[key]}"
    return None


def more_than(found: Iterable[str], usual: Iterable[str]) -> list[str]:
    """Names of a kind that is not among the usual ones; names with other digits or hexadecimal parts are alike."""
    known = set(map(_kind, usual))
    return sorted(name for name in found if _kind(name) not in known)


def _kind(name: str) -> str:
    return re.sub(r"[0-9a-f]{8}[0-9a-f-]*|\d+", "*", name)
