"""One HTML file of a run, or of several to compare: curves, skills, samples with credit, findings, cost, settings.

The file loads nothing from a network. Without --out it is RUN_DIRECTORY/run.html of the first run. A run that is
under way is shown as it is now.
"""

import argparse
from pathlib import Path

from recipe.pages.page_samples import SAMPLES
from recipe.pages.run_page import write_run_page
from recipe.records.arms import ReportError
from recipe.records.run_directory import RunDirectory
from recipe.records.versions import unreadable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIRECTORY")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page to write")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="largest number of samples (default: %(default)s)")


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    if options.samples < 0:
        raise ReportError(f"--samples must be 0 or more, got {options.samples}")
    runs = [RunDirectory.existing(path) for path in options.runs]
    try:
        print(write_run_page(runs, options.out, options.samples))
    except OSError:
        raise
    except Exception as error:  # the files of a run may be anything
        raise unreadable("the page cannot be made of these records", error) from error
