"""Learning speed of each arm of a study: one table and one figure, with 95% t intervals over seeds.

RUNS is a folder of run directories named ``<arm>.<repeat>``, such as ``shapley.s0``, of which only finished runs
count, or a file written by ``recipe.keep``. Accuracies are compared at the same number of generated tokens, the
smallest total of a run. Writes ``speed.md``, ``speed.json`` and ``speed.png`` (also as SVG).
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_hex

from recipe.records.arms import (
    ReportError,
    add_study_options,
    by_arm,
    finished_runs,
    notes_of,
    output_folder,
    over_runs,
    repeat_of,
    warn_of_different_starts,
)
from recipe.records.intervals import RUNS_OF_AN_INTERVAL, Interval, t_interval
from recipe.records.learning_speed import LearningCurve, read_curve
from recipe.records.pictures import MARKERS, save
from recipe.records.run_directory import write_atomically
from recipe.records.tables import cautions, markdown_table

Curves = Mapping[str, Mapping[str, LearningCurve]]  # arm -> repeat -> curve


@dataclass(frozen=True)
class SpeedRow:
    """An arm's means over runs with 95% intervals (Student's t), in shares of 1, updates and seconds.

    steps, seconds: until the accuracy to reach; a run that never reaches it counts with its last update and all its
    seconds. seconds is over the runs that measured them, None if none did. gain, steps_more: accuracy and steps minus
    those of the arm to compare with, in pairs of runs with the same seed; None without pairs. pairs: number of pairs.
    measured: number of runs behind `seconds`. greedy: after the last update, over the runs that measured it; None if
    none did.
    """

    arm: str
    runs: int
    accuracy: Interval
    gain: Interval | None
    reached: int
    steps: Interval
    steps_more: Interval | None
    seconds: Interval | None
    tokens: Interval
    pairs: int
    measured: int
    greedy: Interval | None


def speed_rows(curves: Curves, reach: float, against: str) -> list[SpeedRow]:
    """One row per arm; accuracies at the number of generated tokens that every run has."""
    budget = common_tokens(curves)
    rows = []
    for arm, of_arm in curves.items():
        spent = [spent_until(curve, reach) for curve in of_arm.values()]
        measured = [seconds for _, seconds in spent if np.isfinite(seconds)]
        greedy = [float(curve.greedy[-1]) for curve in of_arm.values() if np.isfinite(curve.greedy[-1])]
        others = curves.get(against, {}) if arm != against else {}
        pairs = [(of_arm[name], others[name]) for name in of_arm if name in others]
        gains = [curve.at(budget) - other.at(budget) for curve, other in pairs]
        steps_more = [spent_until(curve, reach)[0] - spent_until(other, reach)[0] for curve, other in pairs]
        rows.append(
            SpeedRow(
                arm=arm,
                runs=len(of_arm),
                accuracy=t_interval([curve.at(budget) for curve in of_arm.values()]),
                gain=t_interval(gains) if pairs else None,
                reached=sum(curve.reaches(reach) is not None for curve in of_arm.values()),
                steps=t_interval([steps for steps, _ in spent]),
                steps_more=t_interval(steps_more) if pairs else None,
                seconds=t_interval(measured) if measured else None,
                tokens=t_interval([float(curve.tokens[-1]) for curve in of_arm.values()]),
                pairs=len(pairs),
                measured=len(measured),
                greedy=t_interval(greedy) if greedy else None,
            )
        )
    return rows


def spent_until(curve: LearningCurve, reach: float) -> tuple[float, float]:
    """Updates and sandbox seconds until an accuracy; the run's totals if it never reaches it."""
    return curve.reaches(reach) or (float(curve.steps[-1]), float(curve.seconds[-1]))


def common_tokens(curves: Curves) -> float:
    """Generated tokens of the run that generated fewest."""
    return min(float(curve.tokens[-1]) for own in curves.values() for curve in own.values())


def speed_table(rows: Sequence[SpeedRow], reach: float, against: str, budget: float) -> str:
    """The rows as a Markdown table."""
    headers = [
        "arm", "runs", f"accuracy at {budget / 1000:,.0f} k tokens (%)", f"against {against}, paired (points)",
        f"updates to {reach:.0%}", f"against {against}, paired", f"sandbox seconds to {reach:.0%}", "reached",
        "k tokens per run", "greedy at the end (%)",
    ]  # fmt: skip
    lines = []
    for row in rows:
        gain = over_runs(row.gain.scaled(100).text(sign="+"), row.pairs, row.runs) if row.gain else ""
        more = over_runs(row.steps_more.text(sign="+"), row.pairs, row.runs) if row.steps_more else ""
        seconds = over_runs(row.seconds.text(), row.measured, row.runs) if row.seconds else "-"
        lines.append([
            row.arm, str(row.runs), row.accuracy.scaled(100).text(), gain, row.steps.text(), more, seconds,
            f"{row.reached} of {row.runs}", row.tokens.scaled(1e-3).text(),
            row.greedy.scaled(100).text() if row.greedy else "-",
        ])  # fmt: skip
    return f"Means over runs [95% intervals, Student's t].\n\n{markdown_table(headers, lines)}"


def draw_speed(curves: Curves, reach: float, path: Path) -> Path:
    """Draw each arm's mean accuracy over generated tokens and over sandbox seconds.

    Lines are of every update's training samples, with bands of one standard error; points are validations, with 95%
    intervals for arms of three or more runs. The axes fit the arms that end at or above their start; the legend marks
    the others, whose curves may leave the axes.
    """
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained", sharey=True)
    inside = [arm for arm, of_arm in curves.items() if _learns(of_arm)] or list(curves)
    for axes, field, scale, label in (
        (panels[0], "tokens", 1e-3, "generated tokens (thousands)"),
        (panels[1], "seconds", 1.0, "sandbox seconds"),
    ):
        furthest = 0.0
        for (arm, of_arm), marker in zip(curves.items(), cycle(MARKERS), strict=False):
            shown = [curve for curve in of_arm.values() if np.isfinite(getattr(curve, field)).all()]
            if not shown:
                continue
            end = max(scale * getattr(curve, field)[-1] for curve in shown)
            furthest = max(furthest, end) if arm in inside else furthest
            name = arm if arm in inside else f"{arm} (falls to {_mean_end(of_arm):.0%})"
            colour = _draw_validations(axes, shown, field, scale, name, marker)
            _draw_training(axes, shown, field, scale, colour)
        axes.axhline(reach, color="gray", linewidth=0.8, linestyle=":")
        axes.set(xlabel=label, xlim=(0, 1.03 * furthest or None))
        axes.grid(alpha=0.3)
    seen = np.concatenate([curve.accuracy for arm in inside for curve in curves[arm].values()])
    panels[0].set(ylabel="accuracy of sampled answers (share of 1)", ylim=(seen.min() - 0.03, seen.max() + 0.03))
    panels[0].set_title("points: validations, 95% intervals over runs", fontsize=9)
    panels[1].set_title("lines: training samples, one standard error; runs that measured seconds", fontsize=9)
    arms = panels[0].get_legend_handles_labels()
    figure.legend(*arms, loc="outside upper center", ncols=6, frameon=False, fontsize=8)
    return save(figure, path)


def _mean_end(curves: Mapping[str, LearningCurve]) -> float:
    return float(np.mean([curve.accuracy[-1] for curve in curves.values()]))


def _learns(curves: Mapping[str, LearningCurve]) -> bool:
    """Whether an arm's final mean accuracy is at least its initial one."""
    return _mean_end(curves) >= float(np.mean([curve.accuracy[0] for curve in curves.values()]))


def _draw_validations(
    axes: plt.Axes, runs: Sequence[LearningCurve], field: str, scale: float, name: str, marker: str
) -> str:
    """Draw the means of an arm's validations, with their intervals if the runs are enough; returns the colour."""
    # Runs of an arm have validations at the same updates; all are cut to the shortest.
    length = min(len(run.accuracy) for run in runs)
    values = [t_interval(each) for each in np.array([run.accuracy[:length] for run in runs]).T]
    middle = scale * np.mean([getattr(run, field)[:length] for run in runs], axis=0)
    bars = np.array([value.bars for value in values]).T if len(runs) >= RUNS_OF_AN_INTERVAL else None
    drawn = axes.errorbar(
        middle, [value.estimate for value in values], yerr=bars, marker=marker, markersize=5, linestyle=":",
        linewidth=0.8, elinewidth=0.8, capsize=2, label=name,
    )  # fmt: skip
    return to_hex(drawn.lines[0].get_color())


def _draw_training(axes: plt.Axes, runs: Sequence[LearningCurve], field: str, scale: float, colour: str) -> None:
    """Draw the accuracy of an arm's training samples, pooled over its runs, with a band of one standard error."""
    samples = [run.training for run in runs]
    length = min(len(one.accuracy) for one in samples)
    if not length:
        return  # not recorded
    counts = np.array([one.count[:length] for one in samples])
    right = np.array([one.accuracy[:length] for one in samples]) * counts
    pooled = counts.sum(0)
    shares = np.divide(right.sum(0), pooled, out=np.full(length, np.nan), where=pooled > 0)
    errors = np.sqrt(np.clip(shares * (1 - shares), 0, None) / np.where(pooled > 0, pooled, np.nan))
    middle = scale * np.mean([getattr(one, field)[:length] for one in samples], axis=0)
    axes.plot(middle, shares, color=colour, linewidth=1.2)
    axes.fill_between(middle, shares - errors, shares + errors, color=colour, alpha=0.15, linewidth=0)


def write_speed(curves: Curves, reach: float, against: str, out: Path, notes: Sequence[str] = ()) -> str:
    """Write table, numbers and figure; returns the table followed by the notes, a paragraph each."""
    rows = speed_rows(curves, reach, against)
    table = "\n\n".join([speed_table(rows, reach, against, common_tokens(curves)), *notes])
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "speed.md", f"{table}\n")
    write_atomically(out / "speed.json", json.dumps([asdict(row) for row in rows], indent=1, allow_nan=False) + "\n")
    draw_speed(curves, reach, out / "speed.png")
    return table


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    add_study_options(parser)
    parser.add_argument("--reach", type=float, default=0.8, help="accuracy to reach, a share of 1 (default 0.8)")
    parser.add_argument("--metric", default="skill/mean/accuracy", help="metric of the validations")


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    runs = finished_runs(options.runs)
    if not runs:
        raise ReportError(f"{options.runs} holds no finished run")
    try:
        curves = {
            arm: {repeat_of(run): read_curve(run, options.metric) for run in own} for arm, own in by_arm(runs).items()
        }
    except ValueError as error:
        raise ReportError(str(error)) from error
    warn_of_different_starts(runs)
    notes = [*cautions(runs), *notes_of(options, runs)]
    print(write_speed(curves, options.reach, options.against, output_folder(options), notes))
