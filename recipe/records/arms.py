"""Runs of a study, from a folder of run directories or one file of kept runs, grouped by arm.

Runs are named ``<arm>.<repeat>``, such as ``ewc.forward.s0``. The arm ends at the first point that is not followed by
a digit, so it may contain a decimal number, as in ``epsilon0.03.s0``. Reports over them share the options at the end,
and the table of what makes their runs incomplete or unlike (`study_notes`).
"""

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from recipe.records import kept_runs
from recipe.records.run_directory import RunDirectory
from recipe.records.tables import markdown_table
from recipe.records.versions import RecordsError, check_version, starting_weights

SHOWN = 4
"""Names of runs in a cell; of more, the number of the rest."""
VALUES = 6
"""Rows for different commits, processors or weights; of more, one row with their number."""


def finished_runs(source: Path) -> list[RunDirectory]:
    """The finished runs, by name. source: a folder of run directories, or a file written by recipe.keep.

    Raises:
        RecordsError: the file cannot be read, its name has another ending, or this release does not know the version of
            a run's records.
    """
    if kept_runs.is_file(source):
        return list(kept_runs.read(source))
    if source.is_file():
        raise RecordsError(f"{source} is no folder of runs; files of recipe.keep end in {kept_runs.SUFFIX}")
    return [run for run in _directories(source) if run.finished]


def known_run(path: Path) -> RunDirectory:
    """The run directory at a path.

    Raises:
        RecordsError: this release does not know the version of its records.
    """
    run = RunDirectory(path)
    if (path / "config.yaml").exists():
        check_version(run.recorded_version(), path)
    return run


def _directories(source: Path) -> list[RunDirectory]:
    """Run directories by name, also of runs that died before their first event."""
    folders = {path.parent for file in ("config.yaml", "events.jsonl") for path in source.glob(f"*/{file}")}
    return [known_run(folder) for folder in sorted(folders)]


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
    return [
        "different starting weights: " + "; ".join(f"{weights} in {', '.join(names)}" for weights, names in own.items())
        for own in _weights_by_repeat(runs).values()
        if len(own) > 1
    ]


def _weights_by_repeat(runs: Sequence[RunDirectory]) -> dict[str, dict[str, list[str]]]:
    """Names of the runs by repeat and starting weights, where these are known."""
    repeats: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if weights := _weights(run):
            repeats[repeat_of(run)][weights].append(run.path.name)
    return repeats


def study_notes(
    source: Path,
    runs: Sequence[RunDirectory],
    *,
    expected: Sequence[str] = (),
    repeats: Sequence[str] = (),
    untuned: Sequence[str] = (),
    unmeasured: Sequence[str] = (),
) -> list[str]:
    """A Markdown table of what makes these finished runs of a study incomplete or unlike; nothing if nothing does.

    expected, repeats: arms and repeats that should have runs. untuned: arms without tuning. unmeasured: names of
    finished runs that the report leaves out.
    """
    unfinished = [] if kept_runs.is_file(source) else [run for run in _directories(source) if not run.finished]
    known = {run.path.name for run in [*runs, *unfinished]}
    rows = [("not finished, left out", _how_it_ended(run), run.path.name) for run in unfinished]
    rows += [("a stage not validated, left out", "-", _names(unmeasured))] if unmeasured else []
    for arm in expected:
        if missing := [repeat for repeat in repeats if f"{arm}.{repeat}" not in known]:
            rows.append(("not run", arm, ", ".join(missing) if len(missing) < len(repeats) else "any"))
    if planned := {f"{arm}.{repeat}" for arm in expected for repeat in repeats}:
        others = [run.path.name for run in runs if run.path.name not in planned]
        rows += [("not in the plan, counted", "-", _names(others))] if others else []
    rows += [("not tuned", arm, "all") for arm in untuned]
    for kind in ("commit", "processor"):
        rows += _unlike(kind, _by_start(kind, runs))
    by_repeat = _weights_by_repeat(runs).items()
    within = [row for repeat, weights in by_repeat for row in _unlike(f"starting weights of {repeat}", weights)]
    rows += within or _unlike("starting weights, one in each repeat", _by_start("weights", runs))
    return [markdown_table(["caution", "what", "runs"], rows)] if rows else []


def _how_it_ended(run: RunDirectory) -> str:
    last = max((int(row["step"]) for row in run.metrics()), default=0)
    errors = [event["error"] for event in run.events() if event["event"] == "failed" and "error" in event]
    error = re.sub(r"[|\s]+", " ", str(errors[-1]))[:200] if errors else "no error recorded"
    return f"update {last}, {error}"


def _by_start(key: str, runs: Iterable[RunDirectory]) -> dict[str, list[str]]:
    """Names of the runs by what their starts recorded; one that resumed elsewhere has several values."""
    found: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        values = [str(event[key]) for event in run.events() if event["event"] == "start" and event.get(key)]
        if values:
            found[", then ".join(dict.fromkeys(values))].append(run.path.name)
    return found


def _unlike(kind: str, found: dict[str, list[str]]) -> list[tuple[str, str, str]]:
    if len(found) < 2 and not any(", then " in value for value in found):
        return []
    if len(found) > VALUES:
        return [(f"different {kind}", f"{len(found)} of them", "named by each run's start in events.jsonl")]
    return [(f"different {kind}", value, _names(names)) for value, names in found.items()]


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def over_runs(text: str, counted: int, runs: int) -> str:
    """A table cell's text, with the number of runs it covers unless it covers all of the arm's runs."""
    return text if counted == runs else f"{text} ({counted} of {runs} runs)"


def _weights(run: RunDirectory) -> str:
    start = next((event for event in run.events() if event["event"] == "start"), None)
    return starting_weights(start, run.recorded_version, run.path) if start else ""


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
    parser.add_argument("--expect", nargs="+", default=[], metavar="ARM", help="arms that should have runs")
    parser.add_argument("--repeats", nargs="+", default=[], metavar="REPEAT", help="of each of them, such as s30")
    parser.add_argument("--untuned", nargs="+", default=[], metavar="ARM", help="arms whose tuning is missing")


def output_folder(options: argparse.Namespace) -> Path:
    """Output folder of a report over a study."""
    return options.out or summary_folder(options.runs)


def notes_of(options: argparse.Namespace, runs: Sequence[RunDirectory], unmeasured: Sequence[str] = ()) -> list[str]:
    """`study_notes` of a report's finished runs and options."""
    return study_notes(
        options.runs, runs, expected=options.expect, repeats=options.repeats, untuned=options.untuned,
        unmeasured=unmeasured,
    )  # fmt: skip


def warn_of_different_starts(runs: Sequence[RunDirectory]) -> None:
    """Print a line to standard error for each repeat whose runs began with different weights."""
    for difference in different_starts(list(runs)):
        print(difference, file=sys.stderr)
