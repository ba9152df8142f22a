"""One table and one picture over runs of several arms: how fast each learns, with 95% t intervals over seeds.

    python -m recipe.compare_speed FOLDER [--reach 0.8] [--against grpo] [--metric skill/mean/accuracy] [--out FOLDER]

FOLDER holds run directories named ``<arm>.<anything>``, such as ``shapley.s0``; only finished runs count. Accuracies
are compared at the same number of generated tokens: as many as the run had that generated fewest. Writes ``speed.md``,
``speed.json`` and ``speed.png``.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from recipe.records.arms import by_arm, different_starts, finished_runs, over_runs, repeat_of
from recipe.records.figure import plt, save
from recipe.records.intervals import Interval, t_interval
from recipe.records.learning_speed import LearningCurve, read_curve
from recipe.records.run_directory import write_atomically

Curves = Mapping[str, Mapping[str, LearningCurve]]  # of each arm, by what a run's name says besides it


@dataclass(frozen=True)
class SpeedRow:
    """An arm: shares of 1, updates and seconds as means over its runs with 95% intervals (Student's t).

    steps, seconds: until the stated accuracy; a run that never has it counts with its last update and all its seconds.
    seconds is over the runs that measured them, None where none did. gain, steps_more: accuracy and steps beyond those
    of the arm that it is compared with, in pairs of runs with the same seed; None without pairs. pairs, measured: how
    many there are of both.
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


def speed_rows(curves: Curves, reach: float, against: str) -> list[SpeedRow]:
    """One row an arm, at as many generated tokens as every run has."""
    budget = common_tokens(curves)
    rows = []
    for arm, own in curves.items():
        spent = [spent_until(curve, reach) for curve in own.values()]
        measured = [seconds for _, seconds in spent if np.isfinite(seconds)]
        others = curves.get(against, {}) if arm != against else {}
        pairs = [(own[name], others[name]) for name in own if name in others]
        gains = [curve.at(budget) - other.at(budget) for curve, other in pairs]
        more = [spent_until(curve, reach)[0] - spent_until(other, reach)[0] for curve, other in pairs]
        rows.append(
            SpeedRow(
                arm=arm,
                runs=len(own),
                accuracy=t_interval([curve.at(budget) for curve in own.values()]),
                gain=t_interval(gains) if pairs else None,
                reached=sum(curve.reaches(reach) is not None for curve in own.values()),
                steps=t_interval([steps for steps, _ in spent]),
                steps_more=t_interval(more) if pairs else None,
                seconds=t_interval(measured) if measured else None,
                tokens=t_interval([float(curve.tokens[-1]) for curve in own.values()]),
                pairs=len(pairs),
                measured=len(measured),
            )
        )
    return rows


def spent_until(curve: LearningCurve, reach: float) -> tuple[float, float]:
    """Updates and sandbox seconds until an accuracy; all of the run's where it is never reached."""
    return curve.reaches(reach) or (float(curve.steps[-1]), float(curve.seconds[-1]))


def common_tokens(curves: Curves) -> float:
    """Generated tokens of the run that generated fewest."""
    return min(float(curve.tokens[-1]) for own in curves.values() for curve in own.values())


def speed_table(rows: Sequence[SpeedRow], reach: float, against: str, budget: float) -> str:
    """The rows as Markdown."""
    lines = [
        "Means over runs [95% intervals, Student's t].",
        "",
        f"| arm | runs | accuracy at {budget / 1000:,.0f} k tokens (%) | against {against}, paired (points) "
        f"| updates to {reach:.0%} | against {against}, paired | sandbox seconds to {reach:.0%} | reached "
        "| k tokens a run |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        gain = over_runs(row.gain.scaled(100).text(sign="+"), row.pairs, row.runs) if row.gain else ""
        more = over_runs(row.steps_more.text(sign="+"), row.pairs, row.runs) if row.steps_more else ""
        seconds = over_runs(row.seconds.text(), row.measured, row.runs) if row.seconds else "-"
        lines.append(
            f"| {row.arm} | {row.runs} | {row.accuracy.scaled(100).text()} | {gain} | {row.steps.text()} "
            f"| {more} | {seconds} | {row.reached} of {row.runs} | {row.tokens.scaled(1e-3).text()} |"
        )
    return "\n".join(lines)


def draw_speed(curves: Curves, reach: float, path: Path) -> Path:
    """Mean accuracy of each arm at its validations with 95% intervals, over generated tokens and sandbox seconds.

    The window is that of the runs: intervals of two or three of them may reach out of it.
    """
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained", sharey=True)
    for axes, field, scale, label in (
        (panels[0], "tokens", 1e-3, "generated tokens (thousands)"),
        (panels[1], "seconds", 1.0, "sandbox seconds"),
    ):
        for arm, own in curves.items():
            shown = [curve for curve in own.values() if np.isfinite(getattr(curve, field)).all()]
            if not shown:
                continue
            # Runs of an arm are validated at the same updates; one that was not is drawn as far as all were.
            length = min(len(curve.accuracy) for curve in shown)
            places = scale * np.mean([getattr(curve, field)[:length] for curve in shown], axis=0)
            values = [t_interval(each) for each in np.array([curve.accuracy[:length] for curve in shown]).T]
            means = np.array([value.estimate for value in values])
            below, above = np.array([value.bars for value in values]).T
            (line,) = axes.plot(places, means, marker=".", linewidth=1.4, label=arm)
            axes.fill_between(places, means - below, means + above, color=line.get_color(), alpha=0.15, linewidth=0)
        axes.axhline(reach, color="gray", linewidth=0.8, linestyle=":")
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    accuracies = np.concatenate([curve.accuracy for own in curves.values() for curve in own.values()])
    panels[0].set(
        ylabel="sampled accuracy on validation prompts", ylim=(accuracies.min() - 0.03, accuracies.max() + 0.03)
    )
    arms = panels[0].get_legend_handles_labels()
    figure.legend(*arms, loc="outside upper center", ncols=8, frameon=False, fontsize=8)
    return save(figure, path)


def write_speed(curves: Curves, reach: float, against: str, out: Path) -> str:
    """Write table, numbers and picture; returns the table."""
    rows = speed_rows(curves, reach, against)
    table = speed_table(rows, reach, against, common_tokens(curves))
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "speed.md", f"{table}\n")
    write_atomically(out / "speed.json", json.dumps([asdict(row) for row in rows], indent=1, allow_nan=False) + "\n")
    draw_speed(curves, reach, out / "speed.png")
    return table


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="recipe.compare_speed", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reach", type=float, default=0.8, help="the accuracy to reach, a share of 1 (default 0.8)")
    parser.add_argument("--against", default="grpo", help="the arm to compare with in pairs (default grpo)")
    parser.add_argument("--metric", default="skill/mean/accuracy", help="of validations")
    parser.add_argument("--out", type=Path, help="where the table goes (default: FOLDER/summary)")
    options = parser.parse_args(arguments)
    runs = finished_runs(options.folder)
    arms = by_arm(runs)
    if not arms:
        print(f"recipe.compare_speed: {options.folder} holds no finished run", file=sys.stderr)
        return 2
    try:
        curves = {arm: {repeat_of(run): read_curve(run, options.metric) for run in own} for arm, own in arms.items()}
    except ValueError as error:
        print(f"recipe.compare_speed: {error}", file=sys.stderr)
        return 2
    for difference in different_starts(runs):
        print(difference, file=sys.stderr)
    print(write_speed(curves, options.reach, options.against, options.out or options.folder / "summary"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
