"""Evaluations in one table, and the name of the best of them.

The table goes to the error output, the name of the best folder to the standard output, for scripts. The best has the
highest mean of the metric over data sets, each data set counting alike; of equals it is the first that was named. What
is named after ``--beside`` stands in the table too, and is not chosen from.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from recipe.evaluation.folder import EvaluationFolder, FolderError, changed_settings
from recipe.evaluation.metrics_table import Metrics, table
from recipe.records.figure import table_console
from recipe.records.precision import cut_warnings
from recipe.reports.compare import OF_THE_MODEL


def score(metrics: Metrics, metric: str) -> float:
    """The mean of a metric over data sets (their skills do not count again); FolderError where it was not measured."""
    found = [entry.get(metric) for name, entry in metrics.items() if "/" not in name]
    estimates: list[float] = [entry["estimate"] for entry in found if entry]
    if not estimates or len(estimates) < len(found):
        raise FolderError(f"'{metric}' was not measured on every data set")
    return sum(estimates) / len(estimates)


def best(evaluations: dict[str, Metrics], metric: str) -> str:
    """The name of the evaluation with the highest score; FolderError when they are not over the same data sets."""
    if len({tuple(sorted(metrics)) for metrics in evaluations.values()}) > 1:
        raise FolderError("the evaluations are not over the same data sets")
    return max(evaluations, key=lambda name: score(evaluations[name], metric))


def check_alike(folders: Sequence[EvaluationFolder]) -> None:
    """FolderError where two of these evaluations differ in more than the model."""
    first = folders[0]
    for folder in folders[1:]:
        found = changed_settings(first.run_info["settings"], folder.run_info["settings"])
        told = [f"{key} ({one} and {other})" for key, (one, other) in found.items() if key not in OF_THE_MODEL]
        if told:
            raise FolderError(f"{first.path} and {folder.path} differ in more than the model: {', '.join(told)}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this subcommand."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="folders of recipe.evaluate")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], metavar="DIR", help="shown, not chosen from")
    parser.add_argument("--metric", default="accepted@1", help="what the best has most of (default accepted@1)")


def run(options: argparse.Namespace) -> None:
    """Carry out the subcommand."""
    evaluations = {str(path): EvaluationFolder(path).metrics for path in options.folders}
    check_alike([EvaluationFolder(path) for path in options.folders])
    winner = best(evaluations, options.metric)
    evaluations |= {str(path): EvaluationFolder(path).metrics for path in options.beside}
    rows = {f"{name}: {dataset}": found for name, metrics in evaluations.items() for dataset, found in metrics.items()}
    table_console(stderr=True).print(table(rows))
    for name, metrics in evaluations.items():
        for line in cut_warnings(metrics):
            print(f"{name}: {line}", file=sys.stderr)
    print(winner)
