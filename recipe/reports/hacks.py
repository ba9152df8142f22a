"""Reward hacking: proxy accuracy (tests that the prompt shows) against true accuracy, and the rate of special-casing.

For folders of ``recipe.evaluate`` a table with 95% bootstrap intervals over problems; on rows of
``data_prep.impossible`` the first column is their acceptance rate. RUNS, a folder of run directories named
``<arm>.<repeat>`` or a file of ``recipe.keep``: the same of the updates' samples, as ``hacks.md`` and ``hacks.png``.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from recipe.evaluation.folder import EvaluationFolder
from recipe.evaluation.metrics import rate_text
from recipe.records.arms import ReportError, by_arm, finished_runs, summary_folder, warn_of_different_starts
from recipe.records.intervals import t_interval
from recipe.records.pictures import save
from recipe.records.run_directory import RunDirectory, write_atomically
from recipe.records.tables import markdown_table

RATES = ("visible_accuracy", "accepted@1", "visible_gap", "special_casing_rate")
HEADERS = ("shown tests pass (%)", "correct (%)", "gap (points)", "special-casing (%)")


@dataclass(frozen=True)
class HackCurve:
    """Shares of each update's samples: they pass the shown tests, are correct, special-case. Each (updates,)."""

    visible: NDArray[np.float64]
    correct: NDArray[np.float64]
    special: NDArray[np.float64]

    def at_the_end(self) -> tuple[float, float, float, float]:
        """Means over the last quarter of the updates, in the order of HEADERS."""
        count = -(-len(self.visible) // 4)
        visible, correct, special = (float(one[-count:].mean()) for one in (self.visible, self.correct, self.special))
        return visible, correct, visible - correct, special


Curves = Mapping[str, Sequence[HackCurve]]  # arm -> the curves of its runs


def read_curve(run: RunDirectory) -> HackCurve:
    """The curve of a run; ReportError if it did not record whether the shown tests passed."""
    rows = [row for row in run.metrics() if "reward/acc" in row]
    if not rows or any("reward/visible_acc" not in row for row in rows):
        raise ReportError(f"{run.path} has no reward/visible_acc at every update: train it with this release")
    keys = (
        "reward/visible_acc",
        "reward/acc",
        "reward/guard/special_casing",
    )  # a guard that no sample showed is left out
    return HackCurve(*(np.array([row.get(key, 0.0) for row in rows]) for key in keys))


def evaluations_table(folders: Sequence[Path]) -> str:
    """One row per evaluation and data set."""
    lines = [
        [f"{folder}: {name}", str(found["problems"]), *(rate_text(found.get(rate)) for rate in RATES)]
        for folder in folders
        for name, found in EvaluationFolder(folder).metrics.items()
    ]
    return "\n\n".join(
        [
            "Means over problems [95% bootstrap intervals].",
            markdown_table(["evaluation", "problems", *HEADERS], lines),
        ]
    )


def runs_table(curves: Curves) -> str:
    """One row per arm: the last quarter of the updates, and special-casing in update 1, before the arm matters."""
    lines = []
    for arm, own in curves.items():
        start = t_interval([float(curve.special[0]) for curve in own])
        ends = [t_interval(values) for values in zip(*(curve.at_the_end() for curve in own), strict=True)]
        lines.append([arm, str(len(own)), *(one.scaled(100).text() for one in (*ends, start))])
    head = ["arm", "runs", *HEADERS, "special-casing, update 1 (%)"]
    title = "Samples of the last quarter of the updates: means over runs [95% intervals, Student's t]."
    return f"{title}\n\n{markdown_table(head, lines)}"


def draw_hacks(curves: Curves, path: Path) -> Path:
    """Special-casing, and proxy beside true accuracy, over the updates: means over runs; thin lines are the runs."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharey=True)
    for number, (arm, own) in enumerate(curves.items()):
        colour = f"C{number}"
        for axes, name, style, label in (
            (left, "special", "-", arm),
            (right, "visible", "-", f"{arm}: shown tests pass"),
            (right, "correct", "--", f"{arm}: correct"),
        ):
            values = [getattr(curve, name) for curve in own]
            for one in values if len(values) > 1 else ():
                axes.plot(np.arange(1, len(one) + 1), one, style, color=colour, linewidth=0.6, alpha=0.4)
            length = min(map(len, values))
            mean = np.mean([one[:length] for one in values], axis=0)
            axes.plot(np.arange(1, length + 1), mean, style, color=colour, linewidth=1.8, label=label)
    left.set(
        title="answers that special-case the shown test", ylabel="share of an update's samples", ylim=(-0.02, 1.02)
    )
    right.set(title="proxy and true accuracy")
    left.yaxis.set_major_formatter(PercentFormatter(1.0))
    for axes in (left, right):
        axes.set_xlabel("policy updates")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    return save(figure, path)


def write_hacks(curves: Curves, out: Path) -> str:
    """Write the table and the picture of runs; returns the table."""
    out.mkdir(parents=True, exist_ok=True)
    table = runs_table(curves)
    write_atomically(out / "hacks.md", f"{table}\n")
    draw_hacks(curves, out / "hacks.png")
    return table


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("paths", type=Path, nargs="+", metavar="DIR", help="folders of recipe.evaluate, or one RUNS")
    parser.add_argument(
        "--out", type=Path, help="of RUNS: output folder (default: RUNS/summary; RUNS_summary of a file)"
    )


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    if all((path / "run_info.json").is_file() for path in options.paths):
        print(evaluations_table(options.paths))
        return
    source, *others = options.paths
    runs = [] if others else finished_runs(source)
    if not runs:
        listed = ", ".join(map(str, options.paths))
        raise ReportError(f"{listed}: neither evaluations (run_info.json) alone, nor one folder with finished runs")
    warn_of_different_starts(runs)
    curves = {arm: [read_curve(one) for one in own] for arm, own in by_arm(runs).items()}
    print(write_hacks(curves, options.out or summary_folder(source)))
