"""A run's accuracies after each stage and the metrics of its constraints, from its records."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

import numpy as np

from recipe.records.pictures import skill_names
from recipe.records.promise import draw_promise
from recipe.records.run_directory import PROJECTION, RunDirectory
from recipe.records.skill_pictures import write_skill_report
from recipe.records.skill_report import SkillRecord
from recipe.settings import Settings
from recipe.settings.projection import CONSTRAINT_SOURCES
from workers.choices import OF_GAIN
from workers.skill_metrics import Array

MOVED = "moved"
UNPROTECTED = "unprotected skills a step"


def split_half(source: str) -> str:
    """Name of the split-half cosine: agreement between the gradients of two halves of a skill's samples."""
    return f"split-half cosine, {source}"


NUMBERS = (*map(split_half, CONSTRAINT_SOURCES), MOVED, UNPROTECTED)


def constraint_means(steps: Sequence[Mapping[str, float]], source: str) -> dict[str, float]:
    """The `NUMBERS` of a run: means over the steps that measured them (and over skills, if per skill), else NaN.

    source: the configuration's constraint_source. A skill is unprotected in a step if all its constraints are zero.
    """
    cosines, unprotected = defaultdict(list), []
    for step in steps:
        own = [pair for pair in _of(step, "split_half_cosine/") if not pair[0].endswith(OF_GAIN)]
        for name, cosine in own:
            cosines[_skill_and_source(name, source)[1]].append(cosine)
        silent = defaultdict(list)
        for name, zero in _of(step, "unprotected/"):
            silent[_skill_and_source(name, source)[0]].append(bool(zero))
        if silent:
            unprotected.append(sum(map(all, silent.values())))
    moved = [share for step in steps for _, share in _of(step, "moved")]
    return {split_half(kind): _mean(cosines[kind]) for kind in CONSTRAINT_SOURCES} | {
        MOVED: _mean(moved),
        UNPROTECTED: _mean(unprotected),
    }


def _of(step: Mapping[str, float], metric: str) -> list[tuple[str, float]]:
    prefix = f"{PROJECTION}/{metric}"
    return [(key.removeprefix(prefix), value) for key, value in step.items() if key.startswith(prefix)]


def _skill_and_source(constraint: str, source: str) -> tuple[str, str]:
    """Skill and source of a constraint's name, which contains the source only if a skill has two constraints."""
    if source != "both":
        return constraint, source
    skill, _, kind = constraint.rpartition(".")
    return skill, kind


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else np.nan


_PREDICTED = f"{PROJECTION}/predicted_change"


def read_skill_record(run: RunDirectory, settings: Settings) -> SkillRecord | None:
    """Accuracies at the end of each stage, up to the first stage without validation; None if that is the first one.

    Protocol mixed has no stages; each interval between two validations counts as one.
    """
    return _record(run.metrics(), settings)


def stage_metrics(run: RunDirectory, row: dict[str, float], settings: Settings) -> dict[str, float]:
    """Metrics of the stages so far, at the end of a stage; empty at other steps, undefined ones left out.

    ``skill/forgetting`` and ``skill/forward_transfer`` (means over skills), ``skill/new_skill`` (mean accuracy on the
    last stage's skills) and ``skill/interference_correlation`` (of predicted and measured changes).

    row: "step" and the metrics of a validation that is not yet in the run's records.
    """
    ends = settings.stages is None or row["step"] % settings.protocol.stage_steps == 0
    record = _record([*run.metrics(), row], settings) if ends else None
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


def _record(metrics: Sequence[dict[str, float]], settings: Settings) -> SkillRecord | None:
    rows, stages = {int(row["step"]): row for row in metrics}, settings.stages
    named = skill_names(list(rows.values()))
    skills = list(dict.fromkeys([skill for stage in stages or [] for skill in stage] + named))
    measured = [step for step, row in sorted(rows.items()) if "skill/mean/accuracy" in row]
    ends = [step for step in measured if step > 0]
    if stages is not None:
        ends = [settings.protocol.stage_steps * number for number in range(1, len(stages) + 1)]
        ends = list(takewhile(lambda step: step in measured, ends))
    if not ends:
        return None
    begins = [0, *ends[:-1]]
    source = settings.projection.constraint_source
    ending = ".rollouts" if source == "both" else ""
    predicted = np.array([_predicted(rows, skills, ending, *span) for span in zip(begins, ends, strict=True)])
    greedy = np.array([_accuracies(rows[end], skills, "greedy_accuracy") for end in ends])
    errors = np.array([_accuracies(rows.get(step, {}), skills, "standard_error") for step in (0, *ends)])
    halves = _halves([rows.get(step, {}) for step in (0, *ends)], skills)
    # In gradient space the metrics predict the effect of a plain gradient step, not of the optimiser's update.
    has_prediction = settings.projection.space == "displacement" and np.isfinite(predicted).any()
    return SkillRecord(
        skills=skills,
        accuracy=np.array([_accuracies(rows[end], skills) for end in ends]),
        greedy=greedy if np.isfinite(greedy).any() else None,
        initial=_accuracies(rows.get(0, {}), skills),
        trained=None if stages is None else [[skills.index(skill) for skill in stage] for stage in stages[: len(ends)]],
        predicted=predicted if has_prediction else None,
        predicted_by="solutions" if source == "solutions" else "rollouts",
        protected=tuple(settings.projection.protected or ()),
        errors=errors if np.isfinite(errors).any() else None,
        halves=halves,
    )


def update_skill_report(run: RunDirectory, settings: Settings) -> Path | None:
    """Write ``skills/`` in the run directory: JSON, table and figures of the stages so far; None before the first."""
    record = read_skill_record(run, settings)
    if record is None:
        return None
    write_skill_report(record, run.path / "skills")
    draw_promise(run.metrics(), run.path / "skills" / "promise.png")
    return run.path / "skills"


def _accuracies(row: dict[str, float], skills: Sequence[str], measure: str = "accuracy") -> Array:
    return np.array([row.get(f"skill/{skill}/{measure}", np.nan) for skill in skills])


def _halves(rows: Sequence[dict[str, float]], skills: Sequence[str]) -> Array | None:
    """Accuracies (2, rows, skills) of the halves of the prompts; None unless all that was measured has both halves."""
    halves = np.array([[_accuracies(row, skills, f"half_accuracy/{half}") for row in rows] for half in (0, 1)])
    measured = np.isfinite(np.array([_accuracies(row, skills) for row in rows]))
    return halves if measured.any() and np.isfinite(halves[:, measured]).all() else None


def _predicted(
    rows: dict[int, dict[str, float]], skills: Sequence[str], ending: str, begin: int, end: int
) -> list[float]:
    """Per skill, the sum over a stage's steps of the changes predicted by <skill><ending>; NaN without prediction.

    Where gain is asked for, those of its constraint, which has all solutions as one without gain has.
    """
    steps = [row for step, row in rows.items() if begin < step <= end]
    changes = []
    for skill in skills:
        asked, plain = f"{_PREDICTED}/{skill}{OF_GAIN}", f"{_PREDICTED}/{skill}{ending}"
        changes.append([row.get(asked, row.get(plain, float("nan"))) for row in steps if {asked, plain} & row.keys()])
    return [sum(values) if values else float("nan") for values in changes]
