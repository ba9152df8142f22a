"""Proof that the solutions of tasks score the maximum, with the verifiers that judge the model's answers."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from data_prep.json_lines import read_lines
from data_prep.schema import DataFileError
from data_prep.tasks import Task
from rewards import compute_score
from rewards.settings import JudgeSettings

_BATCH = 128


def prove(tasks: Sequence[Task], journal: Path, judge: JudgeSettings) -> list[str]:
    """For each task "none" if its solution scores the maximum or it has none, else the kind of the solution's error.

    judge: the limits and reward settings of the proof. Results under these settings are kept in `journal` after each
    batch, so that an interrupted run resumes. Raises DataFileError if a solution could not be judged: that is no
    evidence about the task.
    """
    known = _known(journal, judge)
    waiting = list({task.fingerprint(): task for task in tasks if task.solution is not None}.items())
    waiting = [(key, task) for key, task in waiting if key not in known]
    if waiting:
        known |= asyncio.run(_judged(waiting, journal, judge))
    return ["none" if task.solution is None else known[task.fingerprint()] for task in tasks]


def _known(journal: Path, judge: JudgeSettings) -> dict[str, str]:
    if not journal.exists():
        return {}
    lines = [line.value for line in read_lines(journal) if line.value is not None]
    return {line["hash"]: line["error"] for line in lines if line.get("judge") == _digest(judge)}


def _digest(judge: JudgeSettings) -> str:
    """A short digest of these settings."""
    return hashlib.sha256(json.dumps(judge.record()).encode()).hexdigest()[:16]


async def _judged(waiting: list[tuple[str, Task]], journal: Path, judge: JudgeSettings) -> dict[str, str]:
    error_of: dict[str, str] = {}
    journal.parent.mkdir(parents=True, exist_ok=True)
    with journal.open("a") as stream, Progress(console=Console(stderr=True)) as progress:
        stream.write("\n")  # the last line of an interrupted run may be cut
        bar = progress.add_task("proving solutions", total=len(waiting))
        for start in range(0, len(waiting), _BATCH):
            batch = waiting[start : start + _BATCH]
            errors = await asyncio.gather(*(_error(task, judge) for _, task in batch))
            for (key, _), error in zip(batch, errors, strict=True):
                error_of[key] = error
                stream.write(json.dumps({"hash": key, "error": error, "judge": _digest(judge)}) + "\n")
            stream.flush()
            progress.advance(bar, len(batch))
    return error_of


async def _error(task: Task, judge: JudgeSettings) -> str:
    truth = json.dumps(task.ground_truth)
    result = await compute_score(task.verifier, task.solution or "", truth, **vars(judge))
    if result["error"] == "infrastructure":
        raise DataFileError(f"the solution of {task.id} could not be judged; see the log, then run again to resume")
    return str(result["error"])
