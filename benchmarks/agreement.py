"""Agreement of the sandbox's `check` with a plain `exec` harness: share of equal verdicts, and all differences.

    python -m benchmarks.agreement                                   # the project's own sets
    python -m benchmarks.agreement --mbpp FILE [FILE] --humaneval FILE --mutants 2000 --out FOLDER

FILE: MBPP as JSON Lines (full) or JSON (sanitized), HumanEval as JSON Lines. All reference solutions run, and mutants
of them (data_prep/sources/bugs.py). The harness (agreements/plain.py) runs them unprotected: trusted programs only.
A verdict is pass or fail of one test. Tests after a time-out do not run and are not counted; a difference with a
time-out on one side counts only if it persists when the program runs again alone with three times the time limit.
The exit status is 1 if fewer than 99.8% of the verdicts are equal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

from benchmarks.agreements.rows import AgreementRow, as_printed, humaneval, idioms, mbpp, mutated, own
from benchmarks.agreements.verdicts import Comparison, VerdictDifference, Verdicts, differences, tests_run
from benchmarks.sandbox_server import running_server
from rewards.sandbox import Sandbox

SECONDS = 3.0
GOAL = 0.998


def share(equal: int, tests: int) -> str:
    """A share in percent with its 95% Wilson interval."""
    low, high = binomtest(equal, tests).proportion_ci(method="wilson")
    return f"{equal / tests:.2%} ({low:.2%} .. {high:.2%})"


def table(rows: Sequence[AgreementRow], found: Sequence[Verdicts], different: Sequence[VerdictDifference]) -> Table:
    """Programs, tests, equal and different verdicts, per source and in total."""
    programs, tests, unequal = Counter[str](), Counter[str](), Counter[str]()
    for row, pair in zip(rows, found, strict=True):
        for name in (_name(row), "all"):
            programs[name] += 1
            tests[name] += tests_run(pair)
    for one in different:
        unequal.update((_name(one.row), "all"))
    made = Table("source", *("programs", "tests", "equal", "different"), "share of equal verdicts, 95% interval")
    for name in sorted(programs, key=lambda name: (name == "all", "mutants" in name)):
        equal = tests[name] - unequal[name]
        figures = (programs[name], tests[name], equal, unequal[name])
        made.add_row(name, *(f"{value:,}" for value in figures), share(equal, tests[name]) if tests[name] else "")
    return made


def _name(row: AgreementRow) -> str:
    return f"{row.source}, mutants" if row.mutant else row.source


async def all_rows(options: argparse.Namespace) -> list[AgreementRow]:
    """The selected reference solutions, and their mutants."""
    rows = [row for path in options.mbpp for row in mbpp(path)]
    rows += [row for path in options.humaneval for row in humaneval(path)]
    if options.idioms:
        rows += idioms()
    else:
        rows += own(options.own, options.seed)
        rows += await as_printed(rows, options.own, SECONDS, options.jobs)
    return [*rows, *mutated(rows, options.mutants, options.seed)]


def report(console: Console, different: Sequence[VerdictDifference]) -> None:
    """Print every difference, by cause."""
    causes = Counter(one.cause for one in different)
    for cause, number in causes.most_common():
        console.print(f"\n{number} x {cause}", style="bold", markup=False)
        for one in different:
            if one.cause == cause:
                console.print(f"  {one.line()}", markup=False, highlight=False, soft_wrap=True)


def write(path: Path, different: Sequence[VerdictDifference]) -> None:
    """Write the differences as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = ("source", "id", "mutant", "program", "setup", "entry_points")
    listed = [
        {name: getattr(one.row, name) for name in fields}
        | {"test": (one.row.tests or one.row.printed)[one.index], "plain": one.plain}
        | {"outcome": one.outcome, "detail": one.detail, "cause": one.cause}
        for one in different
    ]
    path.write_text(json.dumps(listed, indent=1))


async def run(options: argparse.Namespace, url: str, console: Console) -> int:
    """Measure, print and return the exit status."""
    rows = await all_rows(options)
    async with Sandbox(url) as sandbox:
        comparison = Comparison(sandbox, SECONDS, options.jobs)
        found = await comparison.verdicts(rows, console)
        different = [await comparison.explained(one) for one in differences(rows, found)]
    report(console, different)
    console.print(table(rows, found, different))
    if options.out:
        write(options.out / "differences.json", different)
    return int(len(different) > (1 - GOAL) * sum(map(tests_run, found)))


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbpp", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--humaneval", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--idioms", action="store_true", help="agreements/idioms.txt.xz instead of the own sets")
    parser.add_argument("--own", type=int, default=200, help="problems per source of the project")
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="concurrent programs")
    parser.add_argument("--out", type=Path, help="folder for differences.json")
    options = parser.parse_args()
    console = Console()
    with running_server(options.jobs) as (url, _):
        return asyncio.run(run(options, url, console))


if __name__ == "__main__":
    sys.exit(main())
