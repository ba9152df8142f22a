"""Accuracy of the updates' own samples (updates 2 to the last) of each arm of a study, and contrasts between arms.

RUNS is a folder of run directories named ``<arm>.<repeat>``, of which only finished runs count, or a file written by
``recipe.keep``. Contrasts pair runs of the same repeat: difference with a paired t interval, p, p after Holm over the
contrasts, and the ratio of updates to an accuracy. What the runs spent until they reached it stands below, and what
makes the runs incomplete or unlike. Writes ``online.md`` and ``online.json``.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from recipe.records.arms import (
    ReportError,
    add_study_options,
    by_arm,
    finished_runs,
    notes_of,
    output_folder,
    over_runs,
    repeat_of,
    warn_of_different_starts,
)
from recipe.records.intervals import Interval, t_interval
from recipe.records.online import (
    ArmContrast,
    Goal,
    fell,
    holm,
    mean_online,
    online_accuracy,
    paired_p,
    ratio_interval,
    skill_accuracy,
    spent_in,
    update_costs,
    updates_to,
)
from recipe.records.run_directory import write_atomically
from recipe.records.tables import markdown_table

Accuracies = Mapping[str, Mapping[str, Sequence[float]]]  # arm -> repeat -> accuracy at each update
CostsOfUpdates = Mapping[
    str, Mapping[str, Mapping[str, Sequence[float]]]
]  # arm -> repeat -> unit -> cost of each update


@dataclass(frozen=True)
class OnlineRow:
    """An arm's means over runs: online accuracy and that of the first update, shares of 1, and updates to an accuracy.

    reached: runs that reach it; the others count with all their updates.
    """

    arm: str
    runs: int
    start: Interval
    accuracy: Interval
    updates: Interval
    reached: int


def online_rows(accuracies: Accuracies, goal: Goal) -> list[OnlineRow]:
    """One row per arm."""
    rows = []
    for arm, of_arm in accuracies.items():
        until = [updates_to(accuracy, goal) for accuracy in of_arm.values()]
        rows.append(
            OnlineRow(
                arm=arm,
                runs=len(of_arm),
                start=t_interval([accuracy[0] for accuracy in of_arm.values()]),
                accuracy=t_interval([mean_online(accuracy, goal.last) for accuracy in of_arm.values()]),
                updates=t_interval([updates for updates, _ in until]),
                reached=sum(reached for _, reached in until),
            )
        )
    return rows


def contrasts(accuracies: Accuracies, pairs: Sequence[tuple[str, str]], goal: Goal) -> list[ArmContrast]:
    """The contrasts (arm, against), adjusted together; those without a pair of runs are left out, but count."""
    made = [made for arm, against in pairs if (made := _contrast(accuracies, arm, against, goal))]
    return [replace(one, holm=p) for one, p in zip(made, holm([one.p for one in made], len(pairs)), strict=True)]


def _contrast(accuracies: Accuracies, arm: str, against: str, goal: Goal) -> ArmContrast | None:
    of_arm, others = accuracies.get(arm, {}), accuracies.get(against, {})
    repeats = [repeat for repeat in of_arm if repeat in others]
    if not repeats:
        return None
    means = ([mean_online(runs[repeat], goal.last) for repeat in repeats] for runs in (of_arm, others))
    gains = [mine - theirs for mine, theirs in zip(*means, strict=True)]
    mine, theirs = ([updates_to(runs[repeat], goal)[0] for repeat in repeats] for runs in (of_arm, others))
    ratio = ratio_interval(mine, theirs)
    return ArmContrast(arm, against, len(repeats), t_interval(gains), paired_p(gains), None, ratio)


def online_table(rows: Sequence[OnlineRow], compared: Sequence[ArmContrast], goal: Goal) -> str:
    """The rows and the contrasts as two Markdown tables."""
    head = [
        "arm", "runs", f"{goal.unit} 1 (%)", f"{goal.span} (%)", f"{goal.units} to {goal.name}", "reached",
    ]  # fmt: skip
    arms = [
        [
            row.arm, str(row.runs), row.start.scaled(100).text(), row.accuracy.scaled(100).text(), row.updates.text(),
            f"{row.reached} of {row.runs}",
        ]
        for row in rows
    ]  # fmt: skip
    parts = [
        "Accuracy of the updates' own samples: means over runs [95% intervals, Student's t].",
        markdown_table(head, arms),
    ]
    if compared:
        head = ["contrast", "pairs", "difference (points)", "p", "p, Holm", f"ratio of {goal.units} to {goal.name}"]
        lines = [
            [
                f"{one.arm} - {one.against}", str(one.pairs), one.gain.scaled(100).text(sign="+"), _p(one.p),
                _p(one.holm), one.ratio.text(2) if one.ratio else "-",
            ]
            for one in compared
        ]  # fmt: skip
        censored = f"A run that does not reach the accuracy counts with all its {goal.units}."
        parts += [censored, markdown_table(head, lines)]
    return "\n\n".join(parts)


def cost_table(accuracies: Accuracies, costs: CostsOfUpdates, goal: Goal) -> str:
    """What the runs of each arm spent until their samples reached an accuracy, as a Markdown table."""
    units = list(dict.fromkeys(unit for own in costs.values() for one in own.values() for unit in one))
    rows = []
    for arm, of_arm in costs.items():
        updates = {repeat: updates_to(accuracies[arm][repeat], goal)[0] for repeat in of_arm}
        cells = []
        for unit in units:
            spent = [spent_in(one[unit], updates[repeat]) for repeat, one in of_arm.items()]
            known = [value for value in spent if math.isfinite(value)]
            cells.append(over_runs(t_interval(known).text(), len(known), len(spent)) if known else "-")
        rows.append([arm, *cells])
    return markdown_table(["arm", *(f"{unit} to {goal.name}" for unit in units)], rows)


def runs_table(accuracies: Accuracies, goal: Goal) -> str:
    """Online accuracy of each run, its updates to an accuracy, and whether it fell, as a Markdown table."""
    rows = [
        [
            f"{arm}.{repeat}", f"{100 * mean_online(accuracy, goal.last):.1f}",
            f"{updates:.1f}" if reached else f"not in {updates:.0f}",
            "yes" if fell(accuracy, goal.window) else "no",
        ]
        for arm, of_arm in accuracies.items()
        for repeat, accuracy in of_arm.items()
        for updates, reached in [updates_to(accuracy, goal)]
    ]  # fmt: skip
    falls = f"last {goal.window} below half of its best {goal.window}"
    return markdown_table(["run", f"{goal.span} (%)", f"{goal.units} to {goal.name}", falls], rows)


def skills_table(by_skill: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Means over the runs of each arm by skill, as a Markdown table; "" if there is one skill. Percent."""
    skills = list(dict.fromkeys(skill for runs in by_skill.values() for run in runs for skill in run))
    if not skills:
        return ""
    rows = []
    for arm, runs in by_skill.items():
        values = [[100 * run[skill] for run in runs if skill in run] for skill in skills]
        rows.append([arm, *(t_interval(own).text() if own else "-" for own in values)])
    table = markdown_table(["arm", *(f"{skill} (%)" for skill in skills)], rows)
    return f"By skill, from update 2 on:\n\n{table}"


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if value >= 0.00005 else "< 0.0001"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    add_study_options(parser)
    parser.add_argument("--reach", type=float, default=0.5, help="accuracy to reach, a share of 1 (default 0.5)")
    parser.add_argument(
        "--window", type=int, default=1, help="updates whose mean has to reach it: more where each has few samples"
    )
    parser.add_argument(
        "--samples", type=int, default=0, metavar="N",
        help="count blocks of N samples in place of updates: for arms whose updates differ in size",
    )  # fmt: skip
    parser.add_argument(
        "--lengths-differ", action="store_true",
        help="some runs are longer: the accuracy is the mean over what all have, and is reached within all of a run",
    )  # fmt: skip
    parser.add_argument("--each", action="store_true", help="a row for each run, too")
    parser.add_argument(
        "--contrasts", nargs="+", metavar="ARM:AGAINST", help="the contrasts (default: each arm against --against)"
    )


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    runs = finished_runs(options.runs)
    if not runs:
        raise ReportError(f"{options.runs} holds no finished run")
    try:
        goal = Goal(options.reach, options.window, options.samples)
        accuracies = {
            arm: {repeat_of(run): online_accuracy(run, options.samples) for run in own}
            for arm, own in by_arm(runs).items()
        }
    except ValueError as error:
        raise ReportError(str(error)) from error
    lengths = {len(accuracy) for own in accuracies.values() for accuracy in own.values()}
    if len(lengths) > 1 and not options.lengths_differ:
        raise ReportError(
            f"runs of {min(lengths)} and {max(lengths)} {goal.units} cannot be compared; use runs of one length, "
            "--samples N for updates of different sizes, or --lengths-differ"
        )
    if len(lengths) > 1:
        goal = replace(goal, last=min(lengths))
    pairs = [(arm, options.against) for arm in accuracies if arm != options.against and options.against in accuracies]
    if options.contrasts:
        pairs = [_pair(text) for text in options.contrasts]
    costs = {
        arm: {repeat_of(run): update_costs(run, options.samples) for run in own} for arm, own in by_arm(runs).items()
    }
    warn_of_different_starts(runs)
    by_skill = skills_table({arm: list(map(skill_accuracy, own)) for arm, own in by_arm(runs).items()})
    notes = [
        *filter(None, [by_skill]),
        *([runs_table(accuracies, goal)] if options.each else []),
        cost_table(accuracies, costs, goal),
        *_unpaired(accuracies, pairs),
        *notes_of(options, runs),
    ]
    print(write_online(accuracies, pairs, goal, output_folder(options), notes))


def _unpaired(accuracies: Accuracies, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """A sentence on the contrasts that no two runs of the same repeat measure."""
    lacking = [
        f"{arm} - {against}"
        for arm, against in pairs
        if not {*accuracies.get(arm, {})} & {*accuracies.get(against, {})}
    ]
    return [f"No pair of {', '.join(lacking)}; Holm counts {len(pairs)} contrasts."] if lacking else []


def write_online(
    accuracies: Accuracies, pairs: Sequence[tuple[str, str]], goal: Goal, out: Path, notes: Sequence[str] = ()
) -> str:
    """Write table and numbers; returns the table followed by the notes, a paragraph each."""
    rows, compared = online_rows(accuracies, goal), contrasts(accuracies, pairs, goal)
    table = "\n\n".join([online_table(rows, compared, goal), *notes])
    numbers = {
        "goal": asdict(goal),
        "arms": [asdict(row) for row in rows],
        "contrasts": [asdict(one) for one in compared],
    }
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "online.md", f"{table}\n")
    write_atomically(out / "online.json", json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    return table


def _pair(text: str) -> tuple[str, str]:
    arm, colon, against = text.partition(":")
    if not (arm and colon and against):
        raise ReportError(f"--contrasts {text}: write ARM:AGAINST, such as credit:grpo")
    return arm, against
