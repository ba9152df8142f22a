"""Select the best of several evaluations, and print all in one table.

For scripts, only the best folder goes to standard output; the table goes to standard error. The best has the highest
mean of the metric over data sets, each with equal weight; ties go to the first one named. Evaluations after
``--beside`` appear in the table but are not candidates.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from recipe.evaluation.folder import EvaluationFolder, FolderError, changed_settings
from recipe.evaluation.metrics import Metrics, table
from recipe.records.tables import cut_warnings, table_console
from recipe.reports.compare import OF_THE_MODEL


def score(metrics: Metrics, metric: str) -> float:
    """Mean of a metric over data sets (without their skills); FolderError if one did not measure it."""
    entries = [entry.get(metric) for name, entry in metrics.items() if "/" not in name]
    estimates: list[float] = [entry["estimate"] for entry in entries if entry]
    if not estimates or len(estimates) < len(entries):
        raise FolderError(f"'{metric}' was not measured on every data set")
    return sum(estimates) / len(estimates)


def best(evaluations: dict[str, Metrics], metric: str) -> str:
    """Name of the evaluation with the highest score; FolderError if they do not cover the same data sets."""
    if len({tuple(sorted(metrics)) for metrics in evaluations.values()}) > 1:
        raise FolderError("the evaluations do not cover the same data sets: run recipe.evaluate with the same --data")
    return max(evaluations, key=lambda name: score(evaluations[name], metric))


def check_alike(folders: Sequence[EvaluationFolder]) -> None:
    """Raise FolderError if two of these evaluations differ in more than the model."""
    first = folders[0]
    for folder in folders[1:]:
        changed = changed_settings(first.run_info["settings"], folder.run_info["settings"])
        differing = [f"{key} ({one} and {other})" for key, (one, other) in changed.items() if key not in OF_THE_MODEL]
        if differing:
            raise FolderError(f"{first.path} and {folder.path} differ in more than the model: {', '.join(differing)}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="folders of recipe.evaluate")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], metavar="DIR", help="show, but do not choose")
    parser.add_argument("--metric", default="accepted@1", help="metric to maximise (default accepted@1)")


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
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
