"""Compare evaluations: every metric of two with the paired differences, or what several runs changed on average.

Metrics include mean score, entropy, cut share and tokens; of a data set's parts (its skills, its sources) `accepted@1`.
Uses the problems judged in both folders (of ``recipe.evaluate``). A difference has the 95% bootstrap interval of the
differences paired by problem. With several trained folders, such as one per seed, the table holds accuracy, score,
entropy and cut share of the base, of each run and the mean change with Student's t interval over the runs. ``--out``
also writes the differences as JSON; ``--answers`` writes a page of answers of the base and one run.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from rich.table import Table

from recipe.evaluation.folder import EvaluationFolder, FolderError, changed_settings
from recipe.evaluation.metrics import NO_SHARES, answer_values, by_data_set, group, number_text, values
from recipe.evaluation.samples import Problem, Sample
from recipe.records.intervals import Interval, bootstrap_interval, t_interval
from recipe.records.run_directory import write_atomically
from recipe.records.tables import cut_warnings, table_console

OF_RUNS = ("accepted@1", "score", "entropy", "cut_share")
UNITS = "percent, points (not score, entropy, tokens)"
OF_THE_MODEL = ("model", "weights")
NOTHING_IN_COMMON = "the evaluations have no judged problem in common: compare runs over the same --data"

CHANGES = {
    (False, True): "wrong before, right after",
    (False, False): "wrong before and after",
    (True, False): "right before, wrong after",
}

ComparedAnswers = tuple[Problem, Sample, Sample]


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
    differences = []
    for dataset, metric, (before, after) in _common([base, trained]):
        change = bootstrap_interval([second - first for first, second in zip(before, after, strict=True)])
        differences.append(MetricDifference(dataset, metric, len(before), fmean(before), fmean(after), change))
    if not differences:
        raise FolderError(NOTHING_IN_COMMON)
    return differences


def _common(evaluations: Sequence[list[Sample]]) -> Iterator[tuple[str, str, list[list[float]]]]:
    """Data set, metric and, for each evaluation, its values of the problems that all have; of parts the accuracy."""
    found = [
        {dataset: values(problems) | answer_values(problems) for dataset, problems in _by_problem(samples)}
        for samples in evaluations
    ]
    for dataset in sorted(set.intersection(*map(set, found))):
        of_all = [one[dataset] for one in found]
        for metric in ("accepted@1",) if "/" in dataset else of_all[0]:
            problems = sorted(set.intersection(*(set(one[metric]) for one in of_all)))
            if problems:
                yield dataset, metric, [[one[metric][problem] for problem in problems] for one in of_all]


def _by_problem(samples: list[Sample]) -> Iterator[tuple[str, dict[str, list[Sample]]]]:
    for dataset, of_data_set in by_data_set(samples).items():
        yield dataset, group(of_data_set)


@dataclass(frozen=True)
class RunsDifference:
    """One metric of one data set before training and after each of several runs; change: its mean over the runs."""

    dataset: str
    metric: str
    problems: int
    base: float
    trained: list[float]
    change: Interval


def compare_runs(base: list[Sample], runs: list[list[Sample]]) -> list[RunsDifference]:
    """What several runs from one start changed in OF_RUNS of every data set, and in the accuracy of its parts.

    Raises:
        FolderError: no problem is judged in all.
    """
    differences = []
    for dataset, metric, columns in _common([base, *runs]):
        if metric in OF_RUNS:
            before, *after = map(fmean, columns)
            change = t_interval([mean - before for mean in after])
            differences.append(RunsDifference(dataset, metric, len(columns[0]), before, after, change))
    if not differences:
        raise FolderError(NOTHING_IN_COMMON)
    return differences


def table_of_runs(differences: list[RunsDifference], names: list[str]) -> Table:
    """A table of the metrics as in `table`, with a column for each run."""
    title = f"{UNITS} [95% t interval over runs]"
    result = Table("data set (problems)", "metric", "base", *names, "change", title=title)
    result.columns[-1].no_wrap = True
    for row in differences:
        _add_row(result, row, [row.base, *row.trained])
    return result


def _add_row(shown: Table, row: "MetricDifference | RunsDifference", means: list[float]) -> None:
    scale, digits = (1, 3) if row.metric in NO_SHARES else (100, 1)
    cells = [number_text(scale * mean, digits) for mean in means]
    shown.add_row(
        f"{row.dataset} ({row.problems})", row.metric, *cells, row.change.scaled(scale).text(digits, sign="+")
    )


def table(differences: list[MetricDifference]) -> Table:
    """A table of the metrics in percent and the differences in points; score, entropy and tokens as they are."""
    title = f"{UNITS} [95% bootstrap interval over problems]"
    result = Table("data set (problems)", "metric", "base", "trained", "difference", title=title)
    result.columns[-1].no_wrap = True
    for row in differences:
        _add_row(result, row, [row.base, row.trained])
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


def answers_page(problems: Iterable[Problem], base: Iterable[Sample], trained: Iterable[Sample]) -> str:
    """Markdown with the first problem of each change in each skill; first samples of problems judged in both."""
    pairs = [*_pairs(problems, base, trained)]
    parts = ["# Answers before and after training"]
    for skill in dict.fromkeys(problem.skill for problem, _, _ in pairs):
        parts.append(f"## {skill}")
        of_skill = [pair for pair in pairs if pair[0].skill == skill]
        for change, title in CHANGES.items():
            changed = [pair for pair in of_skill if (_accepted(pair[1]), _accepted(pair[2])) == change]
            parts.append(f"### {title}: {len(changed)} of {len(of_skill)}")
            parts += _shown(*changed[0]) if changed else []
    return "\n\n".join(parts) + "\n"


def _pairs(problems: Iterable[Problem], base: Iterable[Sample], trained: Iterable[Sample]) -> Iterator[ComparedAnswers]:
    first = [
        {sample.key[:2]: sample for sample in samples if sample.number == 0 and sample.judged}
        for samples in (base, trained)
    ]
    for problem in problems:
        if all(problem.key in samples for samples in first):
            yield problem, first[0][problem.key], first[1][problem.key]


def _accepted(sample: Sample) -> bool:
    return sample.reward is not None and sample.reward["acc"] > 0


def _shown(problem: Problem, base: Sample, trained: Sample) -> list[str]:
    texts = {"Question": problem.messages[-1]["content"], "Before": base.answer.text, "After": trained.answer.text}
    return [f"{name}:\n\n{_block(text)}" for name, text in texts.items()]


def _block(text: str) -> str:
    """A code block whose fence the text does not contain."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


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
