"""The accuracies of a run's stages, read from its own records."""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import numpy as np

from recipe.records.pictures import skill_names
from recipe.records.run_directory import RunDirectory
from recipe.records.skill_pictures import write_skill_report
from recipe.records.skill_report import SkillRecord
from workers.skill_metrics import Array

_PREDICTED = "actor/projection/predicted_change"


def read_skill_record(
    run: RunDirectory, stages: Sequence[Sequence[str]] | None, stage_steps: int
) -> SkillRecord | None:
    """What validations measured at the end of each stage, up to the first that has none; None where that is all.

    stages: skills that each trains, every one ``stage_steps`` long; None in protocol mixed, where the time between two
    validations takes the place of a stage.
    """
    return _record(run.metrics(), stages, stage_steps)


def stage_metrics(
    run: RunDirectory, row: dict[str, float], stages: Sequence[Sequence[str]] | None, stage_steps: int
) -> dict[str, float]:
    """At the end of a stage, of the stages so far, what is defined of

    ``skill/forgetting`` and ``skill/forward_transfer`` (means over skills), ``skill/new_skill`` (mean accuracy on the
    last stage's skills) and ``skill/interference_correlation`` (of predicted and measured changes).

    row: "step" and the numbers of a validation that is not yet in the run's records.
    """
    ends = stages is None or row["step"] % stage_steps == 0
    record = _record([*run.metrics(), row], stages, stage_steps) if ends else None
    if record is None:
        return {}
    transfer = np.asarray(record.forward_transfer)
    numbers = {
        "skill/forgetting": record.mean_forgetting,
        "skill/new_skill": record.new_skill,
        "skill/forward_transfer": float(np.nanmean(transfer)) if np.isfinite(transfer).any() else np.nan,
        "skill/interference_correlation": record.interference.correlation,
    }
    return {name: value for name, value in numbers.items() if np.isfinite(value)}


def _record(
    metrics: Sequence[dict[str, float]], stages: Sequence[Sequence[str]] | None, stage_steps: int
) -> SkillRecord | None:
    rows = {int(row["step"]): row for row in metrics}
    found = skill_names(list(rows.values()))
    skills = list(dict.fromkeys([skill for stage in stages or [] for skill in stage if skill in found] + found))
    measured = [step for step, row in sorted(rows.items()) if "skill/mean/accuracy" in row]
    ends = [step for step in measured if step > 0]
    if stages is not None:
        ends = [stage_steps * number for number in range(1, len(stages) + 1)]
        ends = list(takewhile(lambda step: step in measured, ends))
    if not ends:
        return None
    begins = [0, *ends[:-1]]
    predicted = np.array([_predicted(rows, skills, *span) for span in zip(begins, ends, strict=True)])
    return SkillRecord(
        skills=skills,
        accuracy=np.array([_accuracies(rows[end], skills) for end in ends]),
        initial=_accuracies(rows.get(0, {}), skills),
        trained=None if stages is None else [[skills.index(skill) for skill in stage] for stage in stages[: len(ends)]],
        predicted=predicted if np.isfinite(predicted).any() else None,
    )


def update_skill_report(run: RunDirectory, stages: Sequence[Sequence[str]] | None, stage_steps: int) -> Path | None:
    """``skills/`` in the run directory: JSON, table and pictures of the stages so far; None before the first."""
    record = read_skill_record(run, stages, stage_steps)
    if record is None:
        return None
    write_skill_report(record, run.path / "skills")
    return run.path / "skills"


def _accuracies(row: dict[str, float], skills: Sequence[str]) -> Array:
    return np.array([row.get(f"skill/{skill}/accuracy", np.nan) for skill in skills])


def _predicted(rows: dict[int, dict[str, float]], skills: Sequence[str], begin: int, end: int) -> list[float]:
    """Sum over a stage's steps of each skill's predicted change; NaN where no step has one.

    With two sources, that of rollouts: it is in units of the reward.
    """
    sums = []
    for skill in skills:
        names = (f"{_PREDICTED}/{skill}", f"{_PREDICTED}/{skill}.rollouts")
        steps = [row for step, row in rows.items() if begin < step <= end]
        values = [row[name] for row in steps for name in names if name in row]
        sums.append(sum(values) if values else float("nan"))
    return sums
