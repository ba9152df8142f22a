"""What is wrong with a run, as text: ``python -m recipe.doctor RUN_DIRECTORY ...``.

Looks at metrics, events and configuration, also of a run that is under way, and reports what is outside its healthy
range and what to try. ``--rules`` prints the ranges. Exit status: 0 if all is well, 1 with findings, 2 if a folder
is not a run.
"""

import argparse
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from recipe.health.record import Record
from recipe.health.rules import RULES, Finding, findings
from recipe.records.run_directory import RunDirectory
from recipe.records.tables import markdown_table
from recipe.records.versions import RecordsError, unreadable
from recipe.runtime.console import program
from recipe.runtime.visible import visible

HEALTHY, FOUND, REFUSED = 0, 1, 2
WIDTH = 110


def rules_table() -> str:
    """The rules as a Markdown table: finding, metric, healthy range."""
    head, _, *body = markdown_table(
        ["finding", "metric", "healthy"], [[rule.name, rule.metric, rule.healthy] for rule in RULES]
    ).splitlines()
    return "\n".join([head, "|---|---|---|", *body])


def report_text(run: Path, found: Sequence[Finding], updates: int) -> str:
    """The findings of a run as text."""
    sound = "healthy" if updates else "no finding, but no update to judge either"
    state = f"{len(found)} finding{'s' * (len(found) != 1)}" if found else sound
    lines = [visible(f"{run} ({updates} updates): {state}")]
    for finding in found:
        rule = finding.rule
        lines += _wrapped(visible(f"- {rule.name}: {finding.seen}"), "  ")
        lines += _wrapped(f"  healthy: {rule.metric}: {rule.healthy}. Try: {rule.advice}", "    ")
    return "\n".join(lines)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent[:2], subsequent_indent=indent + "  ")


def diagnose(path: Path, now: float) -> tuple[str, int]:
    """The text about a run directory, and the exit status it calls for.

    Raises:
        RecordsError: the folder is not a run directory, or one whose records cannot be read.
    """
    run = RunDirectory.existing(path)
    try:
        record = Record.of(run, now)
        found = list(findings(record))
    except Exception as error:  # the files of a run may be anything
        raise unreadable(f"{path} has records that cannot be read", error) from error
    return report_text(path, found, record.updates), FOUND if found else HEALTHY


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=program("doctor"), description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN_DIRECTORY")
    parser.add_argument("--rules", action="store_true", help="print the rules as a table")
    options = parser.parse_args(arguments)
    if options.rules:
        print(rules_table())
        return HEALTHY
    if not options.runs:
        parser.error("name a run directory, such as outputs/three_questions/RUN")
    status = HEALTHY
    for path in options.runs:
        try:
            text, exit_status = diagnose(path, time.time())
        except (OSError, RecordsError) as error:
            print(visible(f"recipe.doctor: {error}"), file=sys.stderr)
            exit_status = REFUSED
        else:
            print(text)
        status = max(status, exit_status)
    return status


if __name__ == "__main__":
    sys.exit(main())
