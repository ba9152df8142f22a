"""Reward hacking: proxy accuracy (tests that the prompt shows) against true accuracy, and the rate of special-casing.

For folders of ``recipe.evaluate`` a table; on rows of ``data_prep.impossible`` its first rate is their acceptance.
RUNS, a folder of run directories named ``<arm>.<repeat>`` or a file of ``recipe.keep``: the same of the updates'
samples, as ``hacks.md`` and ``hacks.png``.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from recipe.evaluation.folder import EvaluationFolder
from recipe.evaluation.metrics import rate_text
from recipe.records.arms import ReportError, by_arm, finished_runs, summary_folder, warn_of_different_starts
from recipe.records.intervals import t_interval
from recipe.records.pictures import save
from recipe.records.run_directory import RunDirectory, write_atomically
from recipe.records.tables import markdown_table

RATES = ("visible_accuracy", "accepted@1", "special_casing_rate", "visible_gap")
HEADERS = ("shown tests pass (%)", "correct (%)", "special-casing (%)", "gap (points)")
SHARES = ("reward/visible_acc", "reward/acc", "reward/guard/special_casing")

HackCurves = Mapping[str, Sequence[NDArray[np.float64]]]  # arm -> (SHARES, updates) of each run


def read_curve(run: RunDirectory) -> NDArray[np.float64]:
    """The SHARES of each update's samples, (3, updates); ReportError if a run did not record the first."""
    rows = [row for row in run.metrics() if "reward/acc" in row]
    if not rows or any(SHARES[0] not in row for row in rows):
        raise ReportError(f"{run.path} has no {SHARES[0]} at every update: train it with this release")
    return np.array([[row.get(key, 0.0) for row in rows] for key in SHARES])  # a guard of no sample has no key


def evaluations_table(folders: Sequence[Path]) -> str:
    """One row per evaluation and data set."""
    lines = [
        [f"{folder}: {name}", str(found["problems"]), *(rate_text(found[rate]) for rate in RATES)]
        for folder in folders
        for name, found in EvaluationFolder(folder).metrics.items()
    ]
    table = markdown_table(["evaluation", "problems", *HEADERS], lines)
    return f"Means over problems [95% bootstrap intervals].\n\n{table}"


def runs_table(curves: HackCurves) -> str:
    """One row per arm: the last quarter of the updates, and special-casing at update 1, before the arm matters."""
    lines = []
    for arm, of_arm in curves.items():
        ends = np.array([curve[:, -curve.shape[1] // 4 :].mean(axis=1) for curve in of_arm]).T
        rates = [*ends, ends[0] - ends[1], np.array([curve[2, 0] for curve in of_arm])]
        lines.append([arm, str(len(of_arm)), *(t_interval(100 * rate).text() for rate in rates)])
    table = markdown_table(["arm", "runs", *HEADERS, "special-casing, update 1 (%)"], lines)
    return f"Last quarter of the updates: means over runs [95% intervals, Student's t].\n\n{table}"


def mean_curve(curves: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The mean over runs at the updates that all have."""
    shortest = min(curve.shape[1] for curve in curves)
    mean: NDArray[np.float64] = np.mean([curve[:, :shortest] for curve in curves], axis=0)
    return mean


def draw_hacks(curves: HackCurves, path: Path) -> Path:
    """Special-casing, and proxy beside true accuracy, over the updates: means over runs."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharey=True)
    for number, (arm, of_arm) in enumerate(curves.items()):
        visible, correct, special = mean_curve(of_arm)
        updates, colour = np.arange(1, len(visible) + 1), f"C{number}"
        left.plot(updates, special, color=colour, label=arm)
        right.plot(updates, visible, color=colour, label=f"{arm}: shown tests pass")
        right.plot(updates, correct, color=colour, linestyle="--", label=f"{arm}: correct")
    left.set(title="special-casing", ylabel="share of an update's samples", ylim=(-0.02, 1.02))
    right.set(title="proxy and true accuracy")
    for axes in (left, right):
        axes.set_xlabel("policy updates")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    return save(figure, path)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("paths", type=Path, nargs="+", metavar="DIR", help="folders of recipe.evaluate, or one RUNS")
    parser.add_argument("--out", type=Path, help="of RUNS: output folder (default: RUNS/summary)")


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    if all((path / "run_info.json").is_file() for path in options.paths):
        print(evaluations_table(options.paths))
        return
    source, *others = options.paths
    runs = [] if others else finished_runs(source)
    if not runs:
        raise ReportError(f"{source}: neither evaluations (run_info.json) alone, nor one folder with finished runs")
    warn_of_different_starts(runs)
    curves = {arm: [read_curve(one) for one in own] for arm, own in by_arm(runs).items()}
    out, table = options.out or summary_folder(source), runs_table(curves)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "hacks.md", f"{table}\n")
    draw_hacks(curves, out / "hacks.png")
    print(table)
