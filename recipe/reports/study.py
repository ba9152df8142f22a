"""Shared parts of the reports over a study's runs: options, output folder, warnings."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from recipe.records.arms import different_starts, summary_folder
from recipe.records.run_directory import RunDirectory


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
