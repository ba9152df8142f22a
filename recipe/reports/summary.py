"""Accuracy before and after each run, as a Markdown table with one row per run."""

import argparse
from pathlib import Path

from recipe.records.arms import ReportError, finished_runs, known_run
from recipe.records.experiment_page import skill_table
from recipe.records.pictures import draw_learning_curve
from recipe.records.run_directory import RunDirectory
from recipe.records.tables import cautions, markdown_table


def summarize(runs: list[RunDirectory]) -> str:
    """A Markdown table of accuracies at the first and last validation of each run: sampled, per skill and their mean,
    and the mean of greedy answers.

    Raises:
        ReportError: a folder has no run with a validation, or the runs have different skills.
    """
    tables = {run: skill_table(run) for run in runs}
    for run, table in tables.items():
        if not table:
            raise ReportError(f"{run.path} holds no run with a validation")
    skills = [row.skill for row in tables[runs[0]]]
    headers = ["run", "updates", *skills, "change of the mean (points)", "mean, greedy"]
    rows = []
    for run, table in tables.items():
        if [row.skill for row in table] != skills:
            raise ReportError(f"{run.path} and {runs[0].path} have different skills; summarize them separately")
        cells = [_change(row.before, row.after) for row in table]
        updates = int(run.metrics()[-1]["step"])
        change, greedy = table[-1].points, table[-1].greedy
        rows.append([run.path.name, str(updates), *cells, change, _change(*greedy) if greedy else "-"])
    return "\n\n".join([markdown_table(headers, rows), *cautions(runs)])


def _runs(path: Path) -> list[RunDirectory]:
    """The run of a run directory, or the finished runs of a folder or a kept file; ReportError if there are none."""
    if (path / "config.yaml").exists():
        return [known_run(path)]
    if not (runs := finished_runs(path)):
        raise ReportError(f"{path} holds no finished run: name a run directory or a folder of them")
    return runs


def _change(before: float, after: float) -> str:
    return f"{100 * before:.1f} -> {100 * after:.1f}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUNS", help="run directories, folders of them, or files of recipe.keep"
    )
    parser.add_argument("--out", type=Path, help="folder for every run's learning curve, RUN.png and RUN.svg")


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    paths: list[Path] = options.runs
    runs = [run for path in paths for run in _runs(path)]
    print(summarize(runs))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        for each in runs:
            draw_learning_curve(each, options.out / f"{each.path.name}.png")
