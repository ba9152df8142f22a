"""Runs of a study, from a folder of run directories or one file of kept runs, grouped by arm.

Runs are named ``<arm>.<repeat>``, such as ``ewc.forward.s0``. The arm ends at the first point that is not followed by
a digit, so it may contain a decimal number, as in ``epsilon0.03.s0``. Reports over them share the options at the end.
"""

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from recipe.records import kept_runs
from recipe.records.run_directory import RunDirectory
from recipe.records.versions import starting_weights


def finished_runs(source: Path) -> list[RunDirectory]:
    """The finished runs, by name. source: a folder of run directories, or a file written by recipe.keep.

    Raises:
        RecordsError: the file cannot be read.
    """
    if kept_runs.is_file(source):
        return list(kept_runs.read(source))
    runs = [RunDirectory(path.parent) for path in sorted(source.glob("*/events.jsonl"))]
    return [run for run in runs if run.finished]


def summary_folder(source: Path) -> Path:
    """Default folder for the tables of these runs."""
    if kept_runs.is_file(source):
        return source.with_name(f"{source.name.partition('.jsonl.')[0]}_summary")
    return source / "summary"


def arm_of(run: RunDirectory) -> str:
    """The arm of a run, from its name."""
    return _parts(run)[0]


def repeat_of(run: RunDirectory) -> str:
    """The run's name without the arm; runs of two arms with the same repeat form a pair."""
    return _parts(run)[1]


def by_arm(runs: list[RunDirectory]) -> dict[str, list[RunDirectory]]:
    """The runs of each arm, in the given order."""
    arms = defaultdict(list)
    for run in runs:
        arms[arm_of(run)].append(run)
    return dict(arms)


def different_starts(runs: list[RunDirectory]) -> list[str]:
    """A message per repeat whose runs began with different weights, so that their difference is not due to the arms.

    Skips runs whose weights are unknown (`versions.starting_weights`).

    Raises:
        RecordsError: a run should have recorded them, and did not.
    """
    repeats: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if weights := _weights(run):
            repeats[repeat_of(run)][weights].append(run.path.name)
    return [
        "different starting weights: " + "; ".join(f"{weights} in {', '.join(names)}" for weights, names in own.items())
        for own in repeats.values()
        if len(own) > 1
    ]


def over_runs(text: str, counted: int, runs: int) -> str:
    """A table cell's text, with the number of runs it covers unless it covers all of the arm's runs."""
    return text if counted == runs else f"{text} ({counted} of {runs} runs)"


def _weights(run: RunDirectory) -> str:
    start = next((event for event in run.events() if event["event"] == "start"), None)
    return starting_weights(start, lambda: run.recorded_config()[1], run.path) if start else ""


def _parts(run: RunDirectory) -> tuple[str, str]:
    arm, *repeat = re.split(r"\.(?!\d)", run.path.name, maxsplit=1)
    return arm, "".join(repeat)


class ReportError(ValueError):
    """There is nothing to report on; the message addresses the user."""


def add_study_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the runs, the arm to compare with, and the output folder."""
    parser.add_argument(
        "runs", type=Path, metavar="RUNS",
        help="a folder of run directories named <arm>.<repeat>, or a file of runs written by recipe.keep",
    )  # fmt: skip
    parser.add_argument("--against", default="grpo", help="the arm to compare with in pairs (default grpo)")
    parser.add_argument(
        "--out", type=Path, help="output folder (default: RUNS/summary; for a file, RUNS_summary next to it)"
    )


def output_folder(options: argparse.Namespace) -> Path:
    """Output folder of a report over a study."""
    return options.out or summary_folder(options.runs)


def warn_of_different_starts(runs: Sequence[RunDirectory]) -> None:
    """Print a line to standard error for each repeat whose runs began with different weights."""
    for difference in different_starts(list(runs)):
        print(difference, file=sys.stderr)
