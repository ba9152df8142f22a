"""The pictures of several skills: forgetting curves, interference heat maps, arms, the Pareto curve over epsilon."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from recipe.records.figure import plt, save
from recipe.records.intervals import t_interval
from recipe.records.skill_report import (
    ParetoPoint,
    SkillRecord,
    forgetting_and_new_skill,
    mean_interference,
    measures,
    pareto_points,
    pareto_table,
    plain,
    skill_table,
)
from workers.skill_metrics import Array, forgetting

_POINTS, _SMALL = ".1f", ".3g"  # how the numbers of a heat map are written
_PREDICTED = {
    "rollouts": "predicted change of the skill\n(in advantages)",
    "solutions": "predicted change of solutions'\nlog-likelihood (nats a token)",
}


def write_skill_report(record: SkillRecord, folder: Path) -> None:
    """``skills.json``, ``skills.md``, ``forgetting.png`` and ``interference.png`` in the folder, made if need be.

    Raises:
        ValueError: accuracies that do not fit the skills and stages.
    """
    numbers, table = measures(record), skill_table(record)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "skills.json").write_text(json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    (folder / "skills.md").write_text(f"{table}\n")
    draw_forgetting(record, folder / "forgetting.png")
    draw_interference(record, folder / "interference.png")


def write_pareto_report(runs: Mapping[float, Sequence[SkillRecord]], folder: Path) -> None:
    """``pareto.json``, ``pareto.md`` and ``pareto.png`` of runs by their epsilon, one record a seed.

    An epsilon of infinity (no protection) is null in JSON.
    """
    points = pareto_points(runs)
    numbers = [_numbers(point) for point in points]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pareto.json").write_text(json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    (folder / "pareto.md").write_text(f"{pareto_table(points)}\n")
    draw_pareto(points, folder / "pareto.png")


def draw_forgetting(record: SkillRecord, path: Path) -> Path:
    """Accuracy after each stage, and beside it how far each skill is below the best seen before, the start included.

    A star marks the stages that train a skill; forgetting below 0 is a skill that got better without being trained.
    """
    matrix = record.matrix
    lost = np.array([forgetting(matrix[:stage], record.initial) for stage in range(1, len(matrix) + 1)])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    ticks = ["start", *map(_broken, record.stages)]
    for skill, name in enumerate(record.skills):
        accuracy = np.concatenate([[np.asarray(record.initial)[skill]], matrix[:, skill]])
        (line,) = left.plot(accuracy, marker=".", label=name)
        own = [stage for stage, trained in enumerate(record.trained or [], start=1) if skill in trained]
        left.plot(own, accuracy[own], marker="*", markersize=13, linestyle="", color=line.get_color())
        right.plot(range(1, len(ticks)), lost[:, skill], marker=".", color=line.get_color())
    left.set(ylabel="accuracy", ylim=(0, 1), title="accuracy (star: trained in that stage)")
    right.set(title="below the best before (start included)", xlim=left.get_xlim())
    right.axhline(0, color="black", linewidth=0.8)
    for axes in (left, right):
        axes.set_xticks(range(len(ticks)), ticks, fontsize=8)
        axes.set_xlabel("after stage")
        axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=len(record.skills), frameon=False)
    return save(figure, path)


def draw_interference(record: SkillRecord, path: Path) -> Path:
    """Change of each skill's accuracy in each stage; beside it the predicted one, each with a scale of its own."""
    found = record.interference
    panels = [("measured change of the accuracy (points)", 100 * found.measured, _POINTS)]
    if found.predicted is not None:
        correlation = "undefined" if np.isnan(found.correlation) else f"{found.correlation:.2f}"
        over = "" if record.trained is None else " between skills"
        title = f"{_PREDICTED[record.predicted_by]}\n(correlation{over}: {correlation})"
        panels.append((title, found.predicted, _SMALL))
    stages, skills = found.measured.shape
    width, height = 2.2 + 0.9 * skills, 1.8 + 0.55 * stages
    figure, grid = plt.subplots(1, len(panels), figsize=(width * len(panels), height), layout="constrained")
    for axes, (title, values, form) in zip(np.atleast_1d(grid), panels, strict=True):
        _heat_map(axes, values, record.stages, record.skills, form)
        axes.set_ylabel("stage")
        axes.set_title(title, fontsize=9)
    return save(figure, path)


def draw_mean_interference(records: Sequence[SkillRecord], path: Path, foreseen: Sequence[SkillRecord] = ()) -> Path:
    """What training one skill does to each: mean change of the accuracy in a stage, over runs in any order.

    foreseen: runs that measured what their gradients foresaw; its mean stands beside.
    """
    panels = [(f"change of the accuracy in a stage\n(points; mean of {len(records)} runs)", records, 100, _POINTS)]
    if foreseen:
        title = f"{_PREDICTED[foreseen[0].predicted_by]}\n(mean of {len(foreseen)} runs)"
        panels.append((title, foreseen, 1, _SMALL))
    names, trained = records[0].skills, mean_interference(records)[0]
    width, height = (2.2 + 0.9 * len(of) for of in (names, trained))
    figure, grid = plt.subplots(1, len(panels), figsize=(width * len(panels), 0.8 * height), layout="constrained")
    for axes, (title, runs, scale, form) in zip(np.atleast_1d(grid), panels, strict=True):
        rows, columns, changes = mean_interference(runs, predicted=runs is foreseen)
        _heat_map(axes, scale * changes, rows, columns, form)
        axes.set(xlabel="skill", ylabel="trained in the stage")
        axes.set_title(title, fontsize=9)
    return save(figure, path)


def draw_arms(records: Mapping[str, Sequence[SkillRecord]], path: Path) -> Path:
    """Accuracy on the new skill over mean forgetting, one point an arm with 95% t intervals over its runs.

    The window is that of the runs, which are faint points: intervals of two or three runs may reach out of it.
    """
    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    points = {arm: 100 * forgetting_and_new_skill(own) for arm, own in records.items()}
    looks = [(f"C{index % 10}", "os^D"[index % 4]) for index in range(len(points))]
    for runs, (color, marker) in zip(points.values(), looks, strict=True):
        axes.plot(*runs.T, color=color, marker=marker, linestyle="", markersize=3, alpha=0.35)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    for (arm, runs), (color, marker) in zip(points.items(), looks, strict=True):
        if not len(runs):
            continue
        x, y = (t_interval(column) for column in runs.T)
        across, up = ([[length] for length in each.bars] for each in (x, y))
        axes.errorbar(
            x.estimate, y.estimate, xerr=across, yerr=up, color=color, marker=marker,
            linestyle="", elinewidth=0.8, capsize=2, label=f"{arm} ({len(runs)})",
        )  # fmt: skip
    figure.legend(loc="outside right upper", frameon=False, fontsize=8, title="arm (runs)", title_fontsize=8)
    axes.set(xlabel="mean forgetting of earlier skills (points)", ylabel="accuracy on the new skill (%)")
    axes.set_title("better: to the left and up; faint: single runs; bars: 95% t intervals of the mean", fontsize=10)
    axes.grid(alpha=0.3)
    return save(figure, path)


def _heat_map(axes: plt.Axes, values: Array, rows: Sequence[str], columns: Sequence[str], form: str) -> None:
    finite = np.abs(values[np.isfinite(values)])
    limit = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
    axes.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    for (stage, skill), value in np.ndenumerate(values):
        text = "-" if np.isnan(value) else f"{value:+{form}}"
        dark = np.isfinite(value) and abs(value) > 0.6 * limit
        axes.text(skill, stage, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axes.set_xticks(range(values.shape[1]), columns, fontsize=8)
    axes.set_yticks(range(values.shape[0]), map(_broken, rows), fontsize=8)


def _broken(stage: str) -> str:
    """The name of a stage with a line for each of its skills: many would not fit side by side."""
    return stage.replace(" + ", "\n+ ")


def draw_pareto(points: Sequence[ParetoPoint], path: Path) -> Path:
    """Accuracy on the new skill over mean forgetting, one point for each epsilon; bars: least and greatest run.

    A line joins the points where each is a mean: between single runs it would show chance.
    """
    figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
    forgotten, gained = ([getattr(point, name) for point in points] for name in ("forgetting", "new_skill"))
    x, y = ([100 * spread.mean for spread in spreads] for spreads in (forgotten, gained))
    single = [point.seeds == 1 for point in points]
    bars = [np.array([(s.mean - s.low, s.high - s.mean) for s in spreads]).T for spreads in (forgotten, gained)]
    across, up = (np.where(single, np.nan, 100 * lengths) for lengths in bars)
    line = "" if any(single) else "-"
    axes.errorbar(x, y, xerr=across, yerr=up, marker="o", linestyle=line, linewidth=1.4, elinewidth=0.8, capsize=2)
    for point, where in zip(points, zip(x, y, strict=True), strict=True):
        name = f"{point.epsilon:g}" if math.isfinite(point.epsilon) else "unprotected"
        axes.annotate(f"{name} ({point.seeds})", where, xytext=(5, -11), textcoords="offset points", fontsize=8)
    axes.set(xlabel="mean forgetting of earlier skills (points)", ylabel="accuracy on the new skill (%)")
    meaning = "" if all(single) else "; bars from the lowest to the highest run"
    axes.set_title(f"by epsilon (number of runs){meaning}", fontsize=10)
    axes.margins(0.15)  # room for the names
    axes.grid(alpha=0.3)
    return save(figure, path)


def _numbers(point: ParetoPoint) -> dict[str, Any]:
    spreads = {"new_skill": point.new_skill, "forgetting": point.forgetting}
    numbers = {name: {part: plain(value) for part, value in asdict(of).items()} for name, of in spreads.items()}
    return {"epsilon": plain(point.epsilon), "seeds": point.seeds, **numbers}
