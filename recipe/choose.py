"""Evaluations in one table, and the best of them: ``python -m recipe.choose [--metric NAME] DIR ...``.

The table goes to the error output, the name of the best folder to the standard output, for scripts. The rule: the
highest mean of the metric over data sets, each data set counting alike; of equals the first that was named. What is
named after ``--beside`` stands in the table too, and is not chosen from.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from recipe.compare import OF_THE_MODEL
from recipe.evaluate import Metrics, table
from recipe.evaluation.folder import EvaluationFolder, FolderError, changed_settings
from recipe.records.figure import table_console
from recipe.records.precision import cut_warnings

REFUSED = 2


def score(metrics: Metrics, metric: str) -> float:
    """The mean of a metric over data sets (their skills do not count again); FolderError where it was not measured."""
    found = [entry.get(metric) for name, entry in metrics.items() if "/" not in name]
    estimates = [entry["estimate"] for entry in found if entry]
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    options = argparse.ArgumentParser(prog="python -m recipe.choose", description=__doc__)
    options.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="folders of recipe.evaluate")
    options.add_argument("--beside", type=Path, nargs="*", default=[], metavar="DIR", help="shown, not chosen from")
    options.add_argument("--metric", default="accepted@1")
    chosen = options.parse_args(arguments)
    try:
        evaluations = {str(path): EvaluationFolder(path).metrics for path in chosen.folders}
        check_alike([EvaluationFolder(path) for path in chosen.folders])
        winner = best(evaluations, chosen.metric)
        evaluations |= {str(path): EvaluationFolder(path).metrics for path in chosen.beside}
    except FolderError as error:
        print(f"recipe.choose: {error}", file=sys.stderr)
        return REFUSED
    rows = {f"{name}: {dataset}": found for name, metrics in evaluations.items() for dataset, found in metrics.items()}
    table_console(stderr=True).print(table(rows))
    for name, metrics in evaluations.items():
        for line in cut_warnings(metrics):
            print(f"{name}: {line}", file=sys.stderr)
    print(winner)
    return 0


if __name__ == "__main__":
    sys.exit(main())
