"""Effects of a run on each skill, from its accuracies after every stage: numbers for JSON and tables in Markdown.

The measures and their definitions are those of `workers.skill_metrics`.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from recipe.records.intervals import Interval, t_interval
from recipe.settings.projection import ConstraintSource
from workers import skill_metrics
from workers.skill_metrics import Array, Interference, Spread, Stages, seed_spread


@dataclass(frozen=True)
class SkillRecord:
    """Accuracies of one run.

    skills: their names. accuracy: (stages, skills) after each stage, NaN where not measured. initial: (skills,).
    trained: the skills that each stage trains; None when every stage trains all of them (protocol mixed).
    greedy: (stages, skills) as `accuracy`, of greedy answers; None if not measured.
    protected: names of skills to keep, even if no stage before the last trains them.
    predicted: (stages, skills) changes predicted by the constraint gradients; predicted_by: their source, rollouts
    (in units of the advantages) or solutions (of the mean log-likelihood, in nats per answer; paper B's kept runs: per
    token).
    errors: (1 + stages, skills) standard errors of `initial` and `accuracy`, NaN where not measured; None if none was.
    halves: (2, 1 + stages, skills) accuracies of the two halves of a skill's prompts; None if they were not measured.
    """

    skills: Sequence[str]
    accuracy: ArrayLike
    initial: ArrayLike
    trained: Stages | None = None
    predicted: ArrayLike | None = None
    predicted_by: ConstraintSource = "rollouts"
    protected: Sequence[str] = ()
    greedy: ArrayLike | None = None
    errors: ArrayLike | None = None
    halves: ArrayLike | None = None

    @property
    def stages(self) -> list[str]:
        """Names of the stages: number and trained skills."""
        if self.trained is None:
            return [f"{stage}" for stage in range(1, len(self.matrix) + 1)]
        return [f"{number} {' + '.join(self.names(stage))}" for number, stage in enumerate(self.trained, start=1)]

    def names(self, stage: Iterable[int]) -> list[str]:
        """Names of the skills with these indices."""
        return [self.skills[skill] for skill in stage]

    @property
    def matrix(self) -> Array:
        """Accuracy (stages, skills) in float64.

        Raises:
            ValueError: the shape does not match the names of the skills.
        """
        matrix = np.asarray(self.accuracy, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != len(self.skills):
            raise ValueError(f"accuracy must be (stages, {len(self.skills)}) for {self.skills}, got {matrix.shape}")
        return matrix

    @property
    def earlier(self) -> list[int]:
        """Indices of the skills that can be forgotten: of earlier stages or protected by name, and not trained last."""
        if self.trained is None:
            return list(range(len(self.skills)))
        *before, last = map(set, self.trained)
        named = {index for index, name in enumerate(self.skills) if name in self.protected}
        return sorted(named.union(*before) - last)

    @property
    def greedy_average(self) -> float:
        """Mean over skills of the greedy accuracy after the last stage; NaN if not measured."""
        return math.nan if self.greedy is None else skill_metrics.average(self.greedy)

    @property
    def forgetting(self) -> Array:
        """Forgetting of each skill (skills,) after the last stage."""
        return self.forgetting_after(len(self.matrix))

    def forgetting_after(self, stages: int) -> Array:
        """Forgetting of each skill (skills,) in so many stages, split over the halves if they are known."""
        if self.halves is None:
            return skill_metrics.forgetting(self.matrix[:stages], self.initial)
        return skill_metrics.split_forgetting(np.asarray(self.halves)[:, : stages + 1])

    @property
    def mean_forgetting(self) -> float:
        """Mean forgetting of the earlier skills; NaN without any."""
        values = self.forgetting[self.earlier]
        return float(values.mean()) if len(values) else math.nan

    @property
    def stage_ends(self) -> Array:
        """Accuracy on each skill as its last stage ends (skills,); NaN where no stage trains it alone."""
        if self.trained is None:
            return np.full(len(self.skills), np.nan)
        return skill_metrics.stage_ends(self.matrix, self.trained)

    @property
    def learned(self) -> float:
        """Mean of `stage_ends` over the skills that a stage trains; NaN in protocol mixed."""
        ends = self.stage_ends
        return float(np.nanmean(ends)) if np.isfinite(ends).any() else math.nan

    @property
    def lost_since_stage(self) -> float:
        """Mean loss of the skills of earlier stages since their own stage ended: no peak is chosen. NaN without any."""
        lost = (self.stage_ends - self.matrix[-1])[self.earlier]
        return float(np.nanmean(lost)) if np.isfinite(lost).any() else math.nan

    @property
    def most_forgotten(self) -> float:
        """Largest forgetting of an earlier skill; NaN without any."""
        values = self.forgetting[self.earlier]
        return float(values.max()) if len(values) else math.nan

    @property
    def new_skill(self) -> float:
        """Mean final accuracy on the skills of the last stage; NaN in protocol mixed."""
        return math.nan if self.trained is None else float(self.matrix[-1, list(self.trained[-1])].mean())

    @property
    def forward_transfer(self) -> Array:
        """Forward transfer of each skill (skills,); NaN in protocol mixed."""
        if self.trained is None:
            return np.full(len(self.skills), np.nan)
        return skill_metrics.forward_transfer(self.matrix, self.initial, self.trained)

    @property
    def interference(self) -> Interference:
        return skill_metrics.interference(self.matrix, self.initial, self.predicted, self.trained)


@dataclass(frozen=True)
class InterferenceRow:
    """Effect of stages with the same trained skills on each skill, over runs.

    stage: names of the trained skills. first: whether the stages begin a run, from the starting model. changes: skill
    -> mean and 95% interval (Student's t), without skills that no run measured. runs: largest number of runs behind a
    change.
    """

    stage: str
    first: bool
    changes: Mapping[str, Interval]
    runs: int

    @property
    def label(self) -> str:
        return f"{self.stage}, first" if self.first else self.stage


def mean_interference(records: Sequence[SkillRecord], predicted: bool = False) -> list[InterferenceRow]:
    """Mean change of each skill's accuracy in stages that train the same skills; first stages separately, at the end.

    A first stage may improve all skills, because the starting model is weak at all of them. That is no effect of one
    skill on another, and in a mean over all stages it would hide the cost of later ones.

    records: of protocols with stages, with the same skills in any order. predicted: average the changes predicted by
    the constraint gradients instead, which every record must have. Rows without any measurement are left out.
    """
    changes: dict[tuple[bool, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        matrix = record.interference.predicted if predicted else record.interference.measured
        assert matrix is not None
        for number, (stage, row) in enumerate(zip(record.trained or [], matrix, strict=False)):
            known = changes[number == 0, " + ".join(sorted(record.names(stage)))]
            for name, change in zip(record.skills, row, strict=True):
                if math.isfinite(change):
                    known[name].append(float(change))
    return [
        InterferenceRow(
            stage,
            first,
            {name: t_interval(values) for name, values in sorted(by_skill.items())},
            max(map(len, by_skill.values())),
        )
        for (first, stage), by_skill in sorted(changes.items())
        if by_skill
    ]


def interference_table(records: Sequence[SkillRecord]) -> str:
    """The mean measured changes in points as a Markdown table."""
    names = sorted(records[0].skills)
    lines = [
        "Points: mean change of the accuracy in a stage [95% intervals over runs, Student's t].",
        "",
        f"| trained in the stage | runs | {' | '.join(names)} |",
        "|---|" + "---:|" * (len(names) + 1),
    ]
    for row in mean_interference(records):
        cells = [row.changes[name].scaled(100).text(sign="+") if name in row.changes else "-" for name in names]
        lines.append(f"| {row.label} | {row.runs} | {' | '.join(cells)} |")
    return "\n".join(lines)


def measures(record: SkillRecord) -> dict[str, Any]:
    """All measures of a run, JSON-serialisable: shares of 1, None for undefined measures."""
    interference = record.interference
    return {
        "skills": list(record.skills),
        "stages": record.stages,
        "trained": None if record.trained is None else [record.names(stage) for stage in record.trained],
        "initial": plain(record.initial),
        "accuracy": plain(record.matrix),
        "greedy_accuracy": plain(record.greedy),
        "average": plain(skill_metrics.average(record.matrix)),
        "greedy_average": plain(record.greedy_average),
        "worst_skill": plain(skill_metrics.worst_skill(record.matrix)),
        "new_skill": plain(record.new_skill),
        "learned": plain(record.learned),
        "lost_since_stage": plain(record.lost_since_stage),
        "forgetting": plain(record.forgetting),
        "mean_forgetting_of_earlier_skills": plain(record.mean_forgetting),
        "forward_transfer": plain(record.forward_transfer),
        "interference": {
            "measured": plain(interference.measured),
            "predicted": plain(interference.predicted),
            "predicted_by": None if interference.predicted is None else record.predicted_by,
            "correlation": plain(interference.correlation),
        },
    }


def plain(values: ArrayLike | None) -> Any:
    """Numbers and nested lists for JSON, with None for values that are not finite."""
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64)
    numbers = array.astype(object)
    numbers[~np.isfinite(array)] = None
    return numbers.tolist()


def skill_table(record: SkillRecord) -> str:
    """Accuracy after each stage, forgetting and forward transfer of each skill, in percent, as a Markdown table."""
    matrix = record.matrix
    rows = [("start", np.asarray(record.initial, dtype=np.float64)), *zip(record.stages, matrix, strict=True)]
    lines = [f"| stage | {' | '.join(record.skills)} | average | worst |", "|---|" + "---:|" * (len(record.skills) + 2)]
    lines += [_row(name, [*row, row.mean(), row.min()]) for name, row in rows]
    final = [record.mean_forgetting, math.nan]
    lines.append(_row("forgetting", [*record.forgetting, *final], signed=True))
    lines.append(_row("forward transfer", [*record.forward_transfer, math.nan, math.nan], signed=True))
    return "\n".join(lines)


def forgetting_and_new_skill(records: Sequence[SkillRecord]) -> Array:
    """Mean forgetting of earlier skills and accuracy on the new skill (runs, 2), for the runs that have both."""
    pairs: Array = np.array([(record.mean_forgetting, record.new_skill) for record in records]).reshape(-1, 2)
    return pairs[np.isfinite(pairs).all(axis=1)]


@dataclass(frozen=True)
class ParetoPoint:
    """Results of runs with one epsilon: spread over seeds of the new skill's accuracy and of mean forgetting."""

    epsilon: float
    seeds: int
    new_skill: Spread
    forgetting: Spread


def pareto_points(runs: Mapping[float, Sequence[SkillRecord]]) -> list[ParetoPoint]:
    """One point per epsilon, ascending, from one record per seed; skips epsilons without a record of both measures."""
    points = {epsilon: forgetting_and_new_skill(runs[epsilon]).T for epsilon in sorted(runs)}
    return [
        ParetoPoint(epsilon, len(gained), seed_spread(gained), seed_spread(forgotten))
        for epsilon, (forgotten, gained) in points.items()
        if len(gained)
    ]


def pareto_table(points: Sequence[ParetoPoint]) -> str:
    """The points in percent as a Markdown table, mean and standard deviation over runs."""
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
    # Adding 0.0 turns a -0.0 from rounding into 0.0.
    return "-" if math.isnan(number) else f"{round(number, 1) + 0.0:{'+' if signed else ''}.1f}"
