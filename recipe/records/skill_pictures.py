"""Figures over skills: forgetting curves, interference heat maps, arms, the Pareto curve over epsilon."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from recipe.records.intervals import NORMAL_QUANTILE, RUNS_OF_AN_INTERVAL, t_interval
from recipe.records.pictures import MARKERS, PALETTE, save
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
from workers.skill_metrics import Array

_POINTS, _SMALL = ".1f", ".3g"  # number formats of a heat map
_PREDICTED = {
    "rollouts": "predicted change of the skill\n(in advantages)",
    "solutions": "predicted change of solutions'\nlog-likelihood (nats)",
}


def write_skill_report(record: SkillRecord, folder: Path) -> None:
    """Write ``skills.json``, ``skills.md``, ``forgetting.png`` and ``interference.png``; creates the folder.

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
    """Write ``pareto.json``, ``pareto.md`` and ``pareto.png`` of runs by their epsilon, one record per seed.

    An epsilon of infinity (no protection) is null in JSON.
    """
    points = pareto_points(runs)
    numbers = [_numbers(point) for point in points]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pareto.json").write_text(json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    (folder / "pareto.md").write_text(f"{pareto_table(points)}\n")
    draw_pareto(points, folder / "pareto.png")


def draw_forgetting(record: SkillRecord, path: Path) -> Path:
    """Draw accuracy after each stage and, next to it, forgetting: distance below the best before, start included.

    A large point marks the stages that train a skill; bars are 95% intervals of an accuracy if its standard error is
    known; forgetting below 0 means that a skill exceeds all its earlier accuracies.
    """
    matrix = record.matrix
    lost = np.array([record.forgetting_after(stage) for stage in range(1, len(matrix) + 1)])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    ticks = ["start", *map(_one_skill_per_line, record.stages)]
    for skill, name in enumerate(record.skills):
        accuracy = np.concatenate([[np.asarray(record.initial)[skill]], matrix[:, skill]])
        marker = MARKERS[skill % len(MARKERS)]
        errors = None if record.errors is None else NORMAL_QUANTILE * np.asarray(record.errors)[:, skill]
        line, *_ = left.errorbar(
            range(len(accuracy)), accuracy, yerr=errors, marker=marker, markersize=4, elinewidth=0.8, capsize=2,
            label=name,
        )  # fmt: skip
        stages = [stage for stage, trained in enumerate(record.trained or [], start=1) if skill in trained]
        left.plot(stages, accuracy[stages], marker=marker, markersize=10, linestyle="", color=line.get_color())
        right.plot(range(1, len(ticks)), lost[:, skill], marker=marker, markersize=4, color=line.get_color())
    bars = "" if record.errors is None else "; bars: 95% intervals"
    left.set(ylabel="accuracy (share of right answers)", ylim=(0, 1))
    left.set_title(f"accuracy (large: trained in that stage{bars})", fontsize=10)
    right.set(ylabel="forgetting (share of right answers)", xlim=left.get_xlim())
    right.set_title("below the best before (start included)", fontsize=10)
    right.axhline(0, color="black", linewidth=0.8)
    for axes in (left, right):
        axes.set_xticks(range(len(ticks)), ticks, fontsize=8)
        axes.set_xlabel("after stage")
        axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=len(record.skills), frameon=False)
    return save(figure, path)


def draw_interference(record: SkillRecord, path: Path) -> Path:
    """Draw the measured and the predicted change of each skill in each stage, each with a separate scale."""
    changes = record.interference
    panels = [_Panel("measured change of the accuracy (points)", 100 * changes.measured, record.stages, _POINTS)]
    if changes.predicted is not None:
        correlation = "undefined" if np.isnan(changes.correlation) else f"{changes.correlation:.2f}"
        over = "" if record.trained is None else " between skills"
        title = f"{_PREDICTED[record.predicted_by]}\n(correlation{over}: {correlation})"
        panels.append(_Panel(title, changes.predicted, record.stages, _SMALL))
    return save(_heat_maps(panels, record.skills, "stage"), path, colours=256)


def draw_mean_interference(records: Sequence[SkillRecord], path: Path, predicting: Sequence[SkillRecord] = ()) -> Path:
    """Draw the effect of training one skill on each: mean change of accuracy in a stage, over runs in any order.

    Stages that begin a run have separate rows, at the bottom. predicting: runs that recorded the changes predicted by
    their gradients, whose mean gets a second panel.
    """
    names = sorted(records[0].skills)
    panels = [_mean_panel("mean change of the accuracy in a stage (points)", records, names, 100, _POINTS)]
    if predicting:
        panels.append(_mean_panel(_PREDICTED[predicting[0].predicted_by], predicting, names, 1, _SMALL, predicted=True))
    return save(_heat_maps(panels, names, "trained in the stage (number of runs)"), path, colours=256)


@dataclass(frozen=True)
class _Panel:
    """A heat map: values (stages, skills), names of its rows, number format (`form`), and intervals of the means
    (stages, skills, 2), NaN for a mean of too few runs."""

    title: str
    values: Array
    rows: Sequence[str]
    form: str
    intervals: Array | None = None


def _mean_panel(
    title: str, records: Sequence[SkillRecord], names: Sequence[str], scale: float, form: str, predicted: bool = False
) -> _Panel:
    rows = mean_interference(records, predicted)
    cells = np.full((len(rows), len(names), 3), np.nan)
    for (number, row), (column, name) in product(enumerate(rows), enumerate(names)):
        change = row.changes.get(name)
        if change is None:
            continue
        cells[number, column, 0] = scale * change.estimate
        if row.runs >= RUNS_OF_AN_INTERVAL and change.low is not None and change.high is not None:
            cells[number, column, 1:] = scale * change.low, scale * change.high
    within = "\n[95% t intervals over runs]" if np.isfinite(cells[..., 1:]).any() else ""
    labels = [f"{row.label} ({row.runs})" for row in rows]
    return _Panel(title + within, cells[..., 0], labels, form, cells[..., 1:])


def _heat_maps(panels: Sequence[_Panel], columns: Sequence[str], ylabel: str) -> plt.Figure:
    """The panels side by side, each with its colour bar."""
    wide = 1.25 if any(panel.intervals is not None for panel in panels) else 0.9
    width = 2.9 + wide * len(columns)
    height = 1.8 + 0.55 * max(len(panel.rows) for panel in panels)
    figure, grid = plt.subplots(1, len(panels), figsize=(width * len(panels), height), layout="constrained")
    for axes, panel in zip(np.atleast_1d(grid), panels, strict=True):
        _heat_map(axes, panel, columns)
        axes.set(xlabel="skill", ylabel=ylabel)
        axes.set_title(panel.title, fontsize=9)
    return figure


def draw_arms(records: Mapping[str, Sequence[SkillRecord]], path: Path) -> Path:
    """Draw accuracy on the new skill over mean forgetting, one point per arm with 95% t intervals over its runs.

    The axes fit the single runs, drawn as faint points; intervals of two or three runs may exceed them.
    """
    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    points = {arm: 100 * forgetting_and_new_skill(own) for arm, own in records.items()}
    looks = list(zip(cycle(PALETTE), islice(cycle(MARKERS), len(points)), strict=False))
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


def _heat_map(axes: plt.Axes, panel: _Panel, columns: Sequence[str]) -> None:
    values = panel.values
    finite = np.abs(values[np.isfinite(values)])
    limit = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
    image = axes.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    axes.figure.colorbar(image, ax=axes, shrink=0.9).ax.tick_params(labelsize=8)
    for (stage, skill), value in np.ndenumerate(values):
        text = "-" if np.isnan(value) else f"{value:+{panel.form}}"
        if panel.intervals is not None and np.isfinite(panel.intervals[stage, skill]).all():
            low, high = panel.intervals[stage, skill]
            text += f"\n[{low:+{panel.form}}, {high:+{panel.form}}]"
        dark = np.isfinite(value) and abs(value) > 0.6 * limit
        axes.text(skill, stage, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axes.set_xticks(range(values.shape[1]), columns, fontsize=8)
    axes.set_yticks(range(values.shape[0]), map(_one_skill_per_line, panel.rows), fontsize=8)


def _one_skill_per_line(stage: str) -> str:
    """The name of a stage with one line per skill, because many skills do not fit side by side."""
    return stage.replace(" + ", "\n+ ")


def draw_pareto(points: Sequence[ParetoPoint], path: Path) -> Path:
    """Draw accuracy on the new skill over mean forgetting, one point per epsilon; bars: lowest and highest run.

    A line joins the points only if all are means: between single runs it would show noise. Single runs are hollow.
    """
    figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
    forgotten, gained = ([getattr(point, name) for point in points] for name in ("forgetting", "new_skill"))
    x, y = ([100 * spread.mean for spread in spreads] for spreads in (forgotten, gained))
    single = [point.seeds == 1 for point in points]
    bars = [np.array([(s.mean - s.low, s.high - s.mean) for s in spreads]).T for spreads in (forgotten, gained)]
    across, up = (np.where(single, np.nan, 100 * lengths) for lengths in bars)
    line = "" if any(single) else "-"
    axes.errorbar(x, y, xerr=across, yerr=up, linestyle=line, linewidth=1.4, elinewidth=0.8, capsize=2)
    for point, where in zip(points, zip(x, y, strict=True), strict=True):
        axes.plot(*where, "o", color="C0", markerfacecolor="white" if point.seeds == 1 else "C0")
        name = f"{point.epsilon:g}" if math.isfinite(point.epsilon) else "unprotected"
        axes.annotate(f"{name} ({point.seeds})", where, xytext=(5, -11), textcoords="offset points", fontsize=8)
    axes.set(xlabel="mean forgetting of earlier skills (points)", ylabel="accuracy on the new skill (%)")
    parts = ["by epsilon (number of runs)"]
    parts += ["hollow: one run, no interval"] if any(single) else []
    parts += [] if all(single) else ["bars from the lowest to the highest run"]
    axes.set_title("; ".join(parts), fontsize=10)
    axes.margins(0.15)  # room for the labels
    axes.grid(alpha=0.3)
    return save(figure, path)


def _numbers(point: ParetoPoint) -> dict[str, Any]:
    spreads = {"new_skill": point.new_skill, "forgetting": point.forgetting}
    numbers = {name: {part: plain(value) for part, value in asdict(of).items()} for name, of in spreads.items()}
    return {"epsilon": plain(point.epsilon), "seeds": point.seeds, **numbers}
