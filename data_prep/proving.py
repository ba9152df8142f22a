"""Proof that the solutions of tasks score the maximum, by the verifiers that will judge the model's answers."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from data_prep.json_lines import read_lines
from data_prep.schema import DataFileError
from data_prep.tasks import Task
from rewards import compute_score

_SECONDS = 10.0
_BATCH = 128


def prove(tasks: Sequence[Task], journal: Path) -> list[str]:
    """Of each task "none" when its solution (if there is one) scores the maximum, else the kind of its error.

    What is known is kept in `journal` after each batch, so that an interrupted run resumes. Raises DataFileError when
    a solution could not be judged: that says nothing about the task.
    """
    known = _known(journal)
    waiting = list({task.fingerprint(): task for task in tasks if task.solution is not None}.items())
    waiting = [(key, task) for key, task in waiting if key not in known]
    if waiting:
        known |= asyncio.run(_judged(waiting, journal))
    return ["none" if task.solution is None else known[task.fingerprint()] for task in tasks]


def _known(journal: Path) -> dict[str, str]:
    if not journal.exists():
        return {}
    lines = [line.value for line in read_lines(journal) if line.value is not None]
    return {line["hash"]: line["error"] for line in lines}


async def _judged(waiting: list[tuple[str, Task]], journal: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    journal.parent.mkdir(parents=True, exist_ok=True)
    with journal.open("a") as stream, Progress(console=Console(stderr=True)) as progress:
        stream.write("\n")  # the last line of an interrupted run may have been cut
        bar = progress.add_task("proving solutions", total=len(waiting))
        for start in range(0, len(waiting), _BATCH):
            batch = waiting[start : start + _BATCH]
            for (key, _), error in zip(batch, await asyncio.gather(*(_error(task) for _, task in batch)), strict=True):
                found[key] = error
                stream.write(json.dumps({"hash": key, "error": error}) + "\n")
            stream.flush()
            progress.advance(bar, len(batch))
    return found


async def _error(task: Task) -> str:
    truth = json.dumps(task.ground_truth)
    result = await compute_score(task.verifier, task.solution or "", truth, timeout=_SECONDS)
    if result["error"] == "infrastructure":
        raise DataFileError(f"the solution of {task.id} could not be judged; see the log, then run again: it resumes")
    return str(result["error"])
