"""What the reports over a study's runs share: their options, the runs of a folder, what to warn of."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from recipe.records.arms import different_starts, summary_folder
from recipe.records.run_directory import RunDirectory


class ReportError(ValueError):
    """There is nothing to report on; the message is for the user."""


def add_study_options(parser: argparse.ArgumentParser) -> None:
    """The runs, the arm to compare with, and where tables and pictures go."""
    parser.add_argument(
        "runs", type=Path, metavar="RUNS",
        help="a folder of run directories named <arm>.<anything>, or a file of them that recipe.keep wrote",
    )  # fmt: skip
    parser.add_argument("--against", default="grpo", help="the arm to compare with in pairs (default grpo)")
    parser.add_argument(
        "--out", type=Path, help="where tables go (default: RUNS/summary; of a file, RUNS_summary beside it)"
    )


def output_folder(options: argparse.Namespace) -> Path:
    """Where a report over a study is written."""
    return options.out or summary_folder(options.runs)


def warn_of_different_starts(runs: Sequence[RunDirectory]) -> None:
    """A line to the error output for each repeat whose runs began with different weights."""
    for difference in different_starts(list(runs)):
        print(difference, file=sys.stderr)
