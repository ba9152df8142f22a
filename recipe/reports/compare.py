"""Compare evaluations: every metric of two with the paired differences, or what several runs changed on average.

Metrics include mean score, entropy, cut share and tokens; of a data set's parts (its skills, its sources) `accepted@1`.
Uses the problems judged in both folders (of ``recipe.evaluate``). A difference has the 95% bootstrap interval of the
differences paired by problem. With several trained folders, such as one per seed, the table holds the accuracy of the
base, of each run and the mean change with Student's t interval over the runs. ``--out`` also writes the differences as
JSON; ``--answers`` writes a page of answers of the base and one run.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from rich.table import Table

from recipe.evaluation.folder import EvaluationFolder, FolderError, changed_settings
from recipe.evaluation.metrics import NO_SHARES, answer_values, by_data_set, group, number_text, values
from recipe.evaluation.samples import Sample
from recipe.records.intervals import Interval, bootstrap_interval, t_interval
from recipe.records.run_directory import write_atomically
from recipe.records.tables import cut_warnings, table_console
from recipe.reports.answers import answers_page

OF_THE_MODEL = ("model", "weights")
NOTHING_IN_COMMON = "the evaluations have no judged problem in common: compare runs over the same --data"


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
        raise FolderError(NOTHING_IN_COMMON)
    return differences


@dataclass(frozen=True)
class RunsDifference:
    """Accuracy on one data set before training and after each of several runs; change: its mean over the runs."""

    dataset: str
    problems: int
    base: float
    trained: list[float]
    change: Interval


def compare_runs(base: list[Sample], runs: list[list[Sample]]) -> list[RunsDifference]:
    """What several runs from one start changed in the accuracy of every data set and of its parts.

    Raises:
        FolderError: no problem is judged in all.
    """
    accepted = [
        {dataset: values(group(found))["accepted@1"] for dataset, found in by_data_set(samples).items()}
        for samples in (base, *runs)
    ]
    differences = []
    for dataset in sorted(set.intersection(*map(set, accepted))):
        problems = sorted(set.intersection(*(set(one[dataset]) for one in accepted)))
        if problems:
            before, *after = (fmean(one[dataset][problem] for problem in problems) for one in accepted)
            change = t_interval([mean - before for mean in after])
            differences.append(RunsDifference(dataset, len(problems), before, after, change))
    if not differences:
        raise FolderError(NOTHING_IN_COMMON)
    return differences


def table_of_runs(differences: list[RunsDifference], names: list[str]) -> Table:
    """A table of the accuracies in percent, one column per run, and of the mean changes in points."""
    result = Table(
        "data set (problems)", "base", *names, "change", title="percent right, points [95% t interval over runs]"
    )
    result.columns[-1].no_wrap = True
    for row in differences:
        cells = [f"{100 * accuracy:.1f}" for accuracy in (row.base, *row.trained)]
        result.add_row(f"{row.dataset} ({row.problems})", *cells, row.change.scaled(100).text(sign="+"))
    return result


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
    base: EvaluationFolder, trained: list[EvaluationFolder], out: Path | None = None, answers: Path | None = None
) -> None:
    """Print the differences, write them as JSON to `out` and a page of answers, and warn of truncated answers and
    differing settings.

    Raises:
        FolderError: a folder has no finished evaluation, no problem is judged in all, or answers of several runs.
    """
    if answers and len(trained) > 1:
        raise FolderError("--answers shows one run beside the base: name one trained folder")
    differing = [line for folder in trained for line in other_settings(base, folder)]
    judged, *of_runs = [
        list(folder.journal().samples.values()) for folder in (base, *trained) if folder.metrics is not None
    ]
    differences: Sequence[MetricDifference | RunsDifference]
    if len(trained) == 1:
        differences = rows = compare(judged, of_runs[0])
        shown = table(rows)
    else:
        differences = means = compare_runs(judged, of_runs)
        shown = table_of_runs(means, [folder.path.name for folder in trained])
    table_console().print(shown)
    if out:
        write_atomically(out, json.dumps([asdict(row) for row in differences], indent=2) + "\n")
    if answers:
        write_atomically(answers, answers_page(trained[0].problems(), judged, of_runs[0]))
    for folder in (base, *trained):
        for line in cut_warnings(folder.metrics):
            print(f"{folder.path}: {line}", file=sys.stderr)
    for line in dict.fromkeys(differing):
        print(f"warning: the evaluations differ in more than the model: {line}", file=sys.stderr)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="base, then one trained or several")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file for the differences")
    parser.add_argument(
        "--answers", type=Path, metavar="FILE", help="Markdown page: for each skill some answers before and after"
    )


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    base, *trained = map(EvaluationFolder, options.folders)
    if not trained:
        raise FolderError("compare needs two folders or more: the evaluation before, then one for each trained model")
    write_comparison(base, trained, options.out, options.answers)
