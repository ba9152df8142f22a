"""The runs of a study: run directories in a folder, or one file of kept runs, named ``<arm>.<anything>``, such as
``ewc.forward.s0``.

The arm ends at the first point that no digit follows, so it may hold a number, as ``epsilon0.03.s0`` does.
"""

import re
from collections import defaultdict
from pathlib import Path

from recipe.records import kept_runs
from recipe.records.run_directory import RunDirectory


def finished_runs(source: Path) -> list[RunDirectory]:
    """The runs that came to their end, by name. source: a folder of run directories, or a file that recipe.keep wrote.

    Raises:
        RecordsError: the file cannot be read.
    """
    if is_file(source):
        return list(kept_runs.read(source))
    runs = [RunDirectory(path.parent) for path in sorted(source.glob("*/events.jsonl"))]
    return [run for run in runs if run.finished]


def is_file(source: Path) -> bool:
    """Whether this names a file of kept runs; otherwise it is a folder of run directories."""
    return source.name.endswith(kept_runs.SUFFIX)


def summary_folder(source: Path) -> Path:
    """Where tables of these runs go unless the user says otherwise."""
    if is_file(source):
        return source.with_name(f"{source.name.removesuffix(kept_runs.SUFFIX)}_summary")
    return source / "summary"


def arm_of(run: RunDirectory) -> str:
    """The arm in a run's name."""
    return _parts(run)[0]


def repeat_of(run: RunDirectory) -> str:
    """What the name says besides the arm: runs of two arms with the same can be compared in pairs."""
    return _parts(run)[1]


def by_arm(runs: list[RunDirectory]) -> dict[str, list[RunDirectory]]:
    """The runs of each arm, in their order."""
    arms = defaultdict(list)
    for run in runs:
        arms[arm_of(run)].append(run)
    return dict(arms)


def different_starts(runs: list[RunDirectory]) -> list[str]:
    """Which runs of the same repeat began with different weights, a sentence each: their difference is not the arms'.

    A run that does not know its weights (made before they were kept, or from a hub's name) is passed over.
    """
    repeats: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        weights = next((event.get("weights") for event in run.events() if event["event"] == "start"), None)
        if weights:
            repeats[repeat_of(run)][weights].append(run.path.name)
    return [
        "different starting weights: " + "; ".join(f"{weights} in {', '.join(names)}" for weights, names in own.items())
        for own in repeats.values()
        if len(own) > 1
    ]


def over_runs(text: str, counted: int, runs: int) -> str:
    """What a table says of some of an arm's runs: how many, too, where these are not all of them."""
    return text if counted == runs else f"{text} ({counted} of {runs} runs)"


def _parts(run: RunDirectory) -> tuple[str, str]:
    arm, *repeat = re.split(r"\.(?!\d)", run.path.name, maxsplit=1)
    return arm, "".join(repeat)
