"""What a run did to each skill, from its accuracies after every stage: numbers for JSON and tables in Markdown.

The measures and their definitions are those of `workers.skill_metrics`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from workers import skill_metrics
from workers.skill_metrics import Array, Interference, Spread, seed_spread


@dataclass(frozen=True)
class SkillRecord:
    """Accuracies of one run.

    skills: their names. accuracy: (stages, skills) after each stage, NaN where not measured. initial: (skills,).
    trained: the skill that each stage trains; None when every stage trains all of them (protocol mixed).
    predicted: (stages, skills) changes of the reward as the constraint gradients foresaw them.
    """

    skills: Sequence[str]
    accuracy: ArrayLike
    initial: ArrayLike
    trained: Sequence[int] | None = None
    predicted: ArrayLike | None = None

    @property
    def stages(self) -> list[str]:
        """Names of the stages: their number and the skill that they train."""
        if self.trained is None:
            return [f"{stage}" for stage in range(1, len(self.matrix) + 1)]
        return [f"{stage} {self.skills[skill]}" for stage, skill in enumerate(self.trained, start=1)]

    @property
    def matrix(self) -> Array:
        """Accuracy (stages, skills) in float64.

        Raises:
            ValueError: a shape that does not fit the names of the skills.
        """
        matrix = np.asarray(self.accuracy, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != len(self.skills):
            raise ValueError(f"accuracy must be (stages, {len(self.skills)}) for {self.skills}, got {matrix.shape}")
        return matrix

    @property
    def earlier(self) -> list[int]:
        """Skills that training could forget: those of earlier stages that the last one does not train."""
        if self.trained is None:
            return list(range(len(self.skills)))
        return sorted(set(self.trained[:-1]) - {self.trained[-1]})

    @property
    def mean_forgetting(self) -> float:
        """Of the earlier skills; NaN when there is none."""
        values = skill_metrics.forgetting(self.matrix)[self.earlier]
        return float(values.mean()) if len(values) else math.nan

    @property
    def most_forgotten(self) -> float:
        """Forgetting of the earlier skill that lost most; NaN when there is none."""
        values = skill_metrics.forgetting(self.matrix)[self.earlier]
        return float(values.max()) if len(values) else math.nan

    @property
    def new_skill(self) -> float:
        """Final accuracy on the skill of the last stage; NaN when that trains all of them."""
        return math.nan if self.trained is None else float(self.matrix[-1, self.trained[-1]])

    @property
    def forward_transfer(self) -> Array:
        """Of each skill (skills,); NaN when every stage trains all of them."""
        if self.trained is None:
            return np.full(len(self.skills), np.nan)
        return skill_metrics.forward_transfer(self.matrix, self.initial, self.trained)

    @property
    def interference(self) -> Interference:
        return skill_metrics.interference(self.matrix, self.initial, self.predicted, self.trained)


def mean_interference(records: Sequence[SkillRecord]) -> tuple[list[str], Array]:
    """Names of the skills, and the mean change of each skill's accuracy in the stages that train a skill.

    records: of protocols with stages, of the same skills in any order. Row i of the matrix (skills, skills): the stages
    that train skill i; NaN where no stage does.
    """
    names = sorted(records[0].skills)
    changes: list[list[list[float]]] = [[[] for _ in names] for _ in names]
    for record in records:
        for stage, skill in enumerate(record.trained or []):
            row = changes[names.index(record.skills[skill])]
            for column, change in enumerate(record.interference.measured[stage]):
                row[names.index(record.skills[column])].append(change)
    return names, np.array([[np.mean(found) if found else math.nan for found in row] for row in changes])


def measures(record: SkillRecord) -> dict[str, Any]:
    """All measures of a run as JSON can hold them: shares of 1, null where a measure is not defined."""
    interference = record.interference
    return {
        "skills": list(record.skills),
        "stages": record.stages,
        "trained": None if record.trained is None else [record.skills[skill] for skill in record.trained],
        "initial": plain(record.initial),
        "accuracy": plain(record.matrix),
        "average": plain(skill_metrics.average(record.matrix)),
        "worst_skill": plain(skill_metrics.worst_skill(record.matrix)),
        "new_skill": plain(record.new_skill),
        "forgetting": plain(skill_metrics.forgetting(record.matrix)),
        "mean_forgetting_of_earlier_skills": plain(record.mean_forgetting),
        "forward_transfer": plain(record.forward_transfer),
        "interference": {
            "measured": plain(interference.measured),
            "predicted": plain(interference.predicted),
            "correlation": plain(interference.correlation),
        },
    }


def plain(values: ArrayLike | None) -> Any:
    """Numbers and nested lists for JSON, with None for what is not finite."""
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64)
    numbers = array.astype(object)
    numbers[~np.isfinite(array)] = None
    return numbers.tolist()


def skill_table(record: SkillRecord) -> str:
    """Accuracy after each stage and what became of each skill, in percent, as Markdown."""
    matrix = record.matrix
    rows = [("start", np.asarray(record.initial, dtype=np.float64)), *zip(record.stages, matrix, strict=True)]
    lines = [f"| stage | {' | '.join(record.skills)} | average | worst |", "|---|" + "---:|" * (len(record.skills) + 2)]
    lines += [_row(name, [*row, row.mean(), row.min()]) for name, row in rows]
    final = [record.mean_forgetting, math.nan]
    lines.append(_row("forgetting", [*skill_metrics.forgetting(matrix), *final], signed=True))
    lines.append(_row("forward transfer", [*record.forward_transfer, math.nan, math.nan], signed=True))
    return "\n".join(lines)


@dataclass(frozen=True)
class ParetoPoint:
    """What runs with one epsilon reached: spreads over seeds of the new skill's accuracy and of mean forgetting."""

    epsilon: float
    seeds: int
    new_skill: Spread
    forgetting: Spread


def pareto_points(runs: Mapping[float, Sequence[SkillRecord]]) -> list[ParetoPoint]:
    """One point for each epsilon, in its order, from one record a seed."""
    return [
        ParetoPoint(
            epsilon,
            len(runs[epsilon]),
            seed_spread([record.new_skill for record in runs[epsilon]]),
            seed_spread([record.mean_forgetting for record in runs[epsilon]]),
        )
        for epsilon in sorted(runs)
    ]


def pareto_table(points: Sequence[ParetoPoint]) -> str:
    """The points in percent as Markdown, mean and standard deviation over runs."""
    lines = [
        "| epsilon | runs | new skill | mean forgetting of earlier skills |",
        "|---:|---:|---:|---:|",
    ]
    for point in points:
        cells = [_percent(of.mean) for of in (point.new_skill, point.forgetting)]
        if point.seeds > 1:
            spreads = (point.new_skill.deviation, point.forgetting.deviation)
            cells = [f"{cell} ± {_percent(deviation)}" for cell, deviation in zip(cells, spreads, strict=True)]
        lines.append(f"| {point.epsilon:g} | {point.seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _row(name: str, values: Sequence[float], signed: bool = False) -> str:
    return f"| {name} | {' | '.join(_percent(value, signed) for value in values)} |"


def _percent(value: float | Array, signed: bool = False) -> str:
    number = 100 * float(value)
    # Adding 0.0 makes -0.0 from rounding a plain zero.
    return "-" if math.isnan(number) else f"{round(number, 1) + 0.0:{'+' if signed else ''}.1f}"
