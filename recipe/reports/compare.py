"""Compare two evaluations: every metric of both, and the paired differences.

Metrics include mean score, entropy, cut share and tokens; of a data set's parts (its skills, its sources) `accepted@1`.
Uses the problems judged in both folders (of ``recipe.evaluate``). A difference has the 95% bootstrap interval of the
differences paired by problem. ``--out`` also writes them as JSON; ``--answers`` writes a page of answers of both.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from recipe.evaluation.folder import EvaluationFolder, FolderError, changed_settings
from recipe.evaluation.metrics import NO_SHARES, answer_values, by_data_set, group, number_text, values
from recipe.evaluation.samples import Sample
from recipe.records.intervals import Interval, bootstrap_interval
from recipe.records.run_directory import write_atomically
from recipe.records.tables import cut_warnings, table_console
from recipe.reports.answers import answers_page

OF_THE_MODEL = ("model", "weights")


@dataclass(frozen=True)
class MetricDifference:
    """One metric of one data set in both evaluations; change: trained minus base over the common problems."""

    dataset: str
    metric: str
    problems: int
    base: float
    trained: float
    change: Interval


def compare(base: list[Sample], trained: list[Sample]) -> list[MetricDifference]:
    """Differences in every metric of every data set that both contain.

    Raises:
        FolderError: no problem is judged in both.
    """
    both = by_data_set(base), by_data_set(trained)
    differences = []
    for dataset in sorted(both[0].keys() & both[1].keys()):
        grouped = [group(samples[dataset]) for samples in both]
        before, after = (values(found) | answer_values(found) for found in grouped)
        for metric in ("accepted@1",) if "/" in dataset else before:
            common = sorted(before[metric].keys() & after[metric].keys())
            if not common:
                continue
            pairs = [(before[metric][problem], after[metric][problem]) for problem in common]
            change = bootstrap_interval([second - first for first, second in pairs])
            base_mean, trained_mean = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
            differences.append(MetricDifference(dataset, metric, len(common), base_mean, trained_mean, change))
    if not differences:
        raise FolderError("the two evaluations have no judged problem in common: compare runs over the same --data")
    return differences


def table(differences: list[MetricDifference]) -> Table:
    """A table of the metrics in percent and the differences in points; score, entropy and tokens as they are."""
    result = Table(
        "data set (problems)",
        "metric",
        "base",
        "trained",
        "difference",
        title="percent, points (not score, entropy, tokens) [95% bootstrap interval over problems]",
    )
    result.columns[-1].no_wrap = True
    for row in differences:
        scale, digits = (1, 3) if row.metric in NO_SHARES else (100, 1)
        cells = [number_text(scale * mean, digits) for mean in (row.base, row.trained)]
        cells.append(row.change.scaled(scale).text(digits, sign="+"))
        result.add_row(f"{row.dataset} ({row.problems})", row.metric, *cells)
    return result


def other_settings(base: EvaluationFolder, trained: EvaluationFolder) -> list[str]:
    """A message for each setting other than the model that differs between two evaluations."""
    changed = changed_settings(base.run_info["settings"], trained.run_info["settings"])
    return [
        f"{key}: {one} in base, {other} in trained" for key, (one, other) in changed.items() if key not in OF_THE_MODEL
    ]


def write_comparison(
    base: EvaluationFolder, trained: EvaluationFolder, out: Path | None = None, answers: Path | None = None
) -> None:
    """Print the differences, write them as JSON to `out` and a page of answers, and warn of truncated answers and
    differing settings.

    Raises:
        FolderError: a folder has no finished evaluation, or no problem is judged in both.
    """
    differing = other_settings(base, trained)
    journals = (folder.journal().samples.values() for folder in (base, trained) if folder.metrics is not None)
    samples = [list(journal) for journal in journals]
    differences = compare(*samples)
    table_console().print(table(differences))
    if out:
        write_atomically(out, json.dumps([asdict(row) for row in differences], indent=2) + "\n")
    if answers:
        write_atomically(answers, answers_page(trained.problems(), *samples))
    for folder in (base, trained):
        for line in cut_warnings(folder.metrics):
            print(f"{folder.path}: {line}", file=sys.stderr)
    for line in differing:
        print(f"warning: the evaluations differ in more than the model: {line}", file=sys.stderr)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("folders", type=Path, nargs=2, metavar="DIR", help="base and trained")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file for the differences")
    parser.add_argument(
        "--answers", type=Path, metavar="FILE", help="Markdown page: for each skill some answers before and after"
    )


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    base, trained = map(EvaluationFolder, options.folders)
    write_comparison(base, trained, options.out, options.answers)
