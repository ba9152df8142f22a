"""Effects of training on the skills in each arm of a study: one table, with 95% t intervals over runs.

RUNS is a folder of run directories named ``<arm>.<repeat>``, such as ``ewc.forward.s0``, of which only finished runs
count, or a file written by ``recipe.keep``. Writes:

- ``arms.md`` (the table of the arms, and those of the constraints in arms with projection and of verified steps),
  ``arms.json``, ``arms.png``;
- ``interference.md`` and ``.png`` of the arm to compare with; the figure also shows the changes predicted by gradients,
  from runs that train like this arm and measure (arm ``measured``);
- ``promise/<run>.png`` of each run whose skills have anchors: J, anchor, slack and multipliers over its updates;
- with ``--pareto`` the curve over ``projection.epsilon``, from the runs whose arm begins with ARM (all runs without
  ARM) and the orders and seeds that every epsilon has.

Each figure is also written as SVG.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recipe.records.arms import (
    ReportError,
    add_study_options,
    arm_of,
    finished_runs,
    notes_of,
    output_folder,
    over_runs,
    repeat_of,
    warn_of_different_starts,
)
from recipe.records.intervals import t_interval
from recipe.records.promise import Promise, constraint_names, draw_promise, promise
from recipe.records.run_directory import STEP_TIME, RunDirectory, write_atomically
from recipe.records.skill_pictures import draw_arms, draw_mean_interference, write_pareto_report
from recipe.records.skill_record import NUMBERS, constraint_means, read_skill_record
from recipe.records.skill_report import SkillRecord, interference_table, measures, plain
from recipe.records.tables import cautions, markdown_table
from recipe.settings import read_settings
from workers import skill_metrics


@dataclass(frozen=True)
class Column:
    """A measure in the table: shares of 1 in the records, percent in the table.

    paired: adds a column of differences from the arm to compare with, in pairs of the same order and seed.
    """

    name: str
    measure: Callable[[SkillRecord], float]
    paired: bool = False


COLUMNS = (
    Column("average", lambda record: skill_metrics.average(record.matrix), paired=True),
    Column("greedy average", lambda record: record.greedy_average),
    Column("worst skill", lambda record: skill_metrics.worst_skill(record.matrix)),
    Column("forgetting", lambda record: record.mean_forgetting, paired=True),
    Column("most forgotten", lambda record: record.most_forgotten),
    Column("new skill", lambda record: record.new_skill, paired=True),
)


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: arm and repeat from its name, its measures, the number of generated samples, the median seconds
    of its steps, means of its constraints' metrics if it projects (method: projection.method; measure: it only
    measures), and its verified steps if it verifies."""

    name: str
    arm: str
    repeat: str
    method: str
    epsilon: float
    record: SkillRecord
    samples: int
    step_seconds: float
    constraints: Mapping[str, float]
    promise: Promise | None = None


def measured_runs(finished: Sequence[RunDirectory]) -> list[FinishedRun]:
    """The runs that measured their skills at the end of every stage; the others are reported on standard error.

    Skills protected by name in one run count as protected in all, so that arms are compared on the same skills; and
    forgetting is split over halves of the prompts only if every run measured them.
    """
    complete = []
    for run in finished:
        config = run.read_config()
        settings = read_settings(config)
        record = read_skill_record(run, settings)
        measured = 0 if record is None else len(record.matrix)
        if record is None or measured < len(settings.stages or []):
            print(
                f"{run.path.name} is left out: its metrics have no validation at the end of stage {measured + 1}",
                file=sys.stderr,
            )
            continue
        projection = settings.projection
        projects = projection.method != "off"
        steps = [row for row in run.metrics() if row["step"] > 0]
        complete.append(
            FinishedRun(
                name=run.path.name,
                arm=arm_of(run),
                repeat=repeat_of(run),
                method=projection.method,
                epsilon=projection.epsilon,
                record=record,
                samples=len(steps) * config.data.train_batch_size * config.actor_rollout_ref.rollout.n,
                step_seconds=float(np.nanmedian([row.get(STEP_TIME, np.nan) for row in steps])),
                constraints=constraint_means(steps, projection.constraint_source) if projects else {},
                promise=promise(steps),
            )
        )
    named = sorted({name for run in complete for name in run.record.protected})
    changed: dict[str, Any] = {"protected": named}
    if any(run.record.halves is None for run in complete):  # one measure for all
        changed["halves"] = None
    return [replace(run, record=replace(run.record, **changed)) for run in complete]


def unmeasured(finished: Sequence[RunDirectory], measured: Sequence[FinishedRun]) -> list[str]:
    """Names of the finished runs that are not among those measured."""
    names = {run.name for run in measured}
    return [run.path.name for run in finished if run.path.name not in names]


def forgetting_notes(runs: Sequence[FinishedRun]) -> list[str]:
    """How the forgetting of these runs was measured, where noise enlarges it."""
    if all(run.record.halves is not None for run in runs):
        return ["Forgetting: the best stage is chosen on half of the prompts and read on the other half."]
    return ["Forgetting is below the best of noisy accuracies: halves of the prompts were not measured in every run."]


def arm_table(runs: Sequence[FinishedRun], against: str) -> str:
    """A Markdown table with a row per arm, in percent: mean and 95% interval (Student's t) over its runs.

    step time: a run's median step time as a multiple of its pair's.
    """
    headers = ["arm", "runs"]
    for column in COLUMNS:
        headers += [column.name, f"against {against}"] if column.paired else [column.name]
    headers += ["samples per run", "step time"]
    rows = []
    others = {run.repeat: run for run in runs if run.arm == against}
    for arm, of_arm in _by(runs, lambda run: run.arm).items():
        pairs = [(run, others[run.repeat]) for run in of_arm if run.repeat in others and arm != against]
        cells = [arm, str(len(of_arm))]
        for column in COLUMNS:
            cells.append(_percent([column.measure(run.record) for run in of_arm], len(of_arm)))
            if column.paired:
                gains = [column.measure(run.record) - column.measure(other.record) for run, other in pairs]
                cells.append(_percent(gains, len(of_arm), sign="+"))
        cells.append("-".join(str(number) for number in sorted({run.samples for run in of_arm})))
        cells.append(_cell([run.step_seconds / other.step_seconds for run, other in pairs], len(of_arm), decimals=2))
        rows.append(cells)
    return f"Percent: means over runs [95% intervals, Student's t].\n\n{markdown_table(headers, rows)}"


def constraint_table(runs: Sequence[FinishedRun]) -> str:
    """A Markdown table of the constraints' metrics, a row per arm with projection; empty without such an arm."""
    projecting = _by([run for run in runs if run.constraints], lambda run: run.arm)
    if not projecting:
        return ""
    headers = ["arm", *NUMBERS, "correlation of predicted and measured change"]
    rows = []
    for arm, of_arm in projecting.items():
        columns = [[run.constraints[name] for run in of_arm] for name in NUMBERS]
        columns.append([run.record.interference.correlation for run in of_arm])
        rows.append([arm, *(_cell(column, len(of_arm), decimals=2) for column in columns)])
    return markdown_table(headers, rows)


def promise_table(runs: Sequence[FinishedRun]) -> str:
    """A Markdown table of verified steps, a row per arm; empty without such an arm. Levels of all runs are pooled."""
    headers = ["arm", "verified steps", "levels at their line or above", "least J - line"]
    headers += ["corrected", "shrunk", "undone"]
    rows = []
    for arm, of_arm in _by([run for run in runs if run.promise], lambda run: run.arm).items():
        promises = [run.promise for run in of_arm if run.promise]
        verified, levels = sum(each.verified for each in promises), sum(each.levels for each in promises)
        below = sum(each.below for each in promises)
        changed = [sum(getattr(each, name) for each in promises) for name in ("corrected", "shrunk", "undone")]
        shares = [f"{100 * count / verified:.1f}%" for count in changed]
        held = f"{100 * (1 - below / levels):.2f}% of {levels}" if levels else "-"
        rows.append([arm, str(verified), held, f"{min(each.lowest for each in promises):+.4f}", *shares])
    return markdown_table(headers, rows) if rows else ""


def draw_promises(finished: Sequence[RunDirectory], folder: Path) -> None:
    """Draw ``<run>.png`` of each run whose skills have anchors."""
    for run in finished:
        if constraint_names(run.metrics()):
            folder.mkdir(parents=True, exist_ok=True)
            draw_promise(run.metrics(), folder / f"{run.path.name}.png")


def write_comparison(
    runs: Sequence[FinishedRun],
    against: str,
    out: Path,
    pareto: str | None,
    notes: Sequence[str] = (),
    last: Sequence[str] = (),
) -> str:
    """Write the tables, the figures and each run's measures; returns the tables.

    pareto: also write the curve over epsilon of the arms whose name begins so. notes, last: paragraphs below the first
    table and at the end.
    """
    parts = [arm_table(runs, against), *notes, constraint_table(runs), promise_table(runs), *last]
    table = "\n\n".join(filter(None, parts))
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "arms.md", f"{table}\n")
    numbers = [
        {"run": run.name, "arm": run.arm, "samples": run.samples, "epsilon": run.epsilon}
        | {"step_seconds": plain(run.step_seconds)}
        | measures(run.record)
        for run in runs
    ]
    write_atomically(out / "arms.json", json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    records = {arm: [run.record for run in own] for arm, own in _by(runs, lambda run: run.arm).items()}
    strict = {run.arm for run in runs if run.epsilon == 0 or not pareto or not run.arm.startswith(pareto)}
    # The other arms are in the curve's own figure. Runs that only measure would coincide with the arm that they repeat.
    strict -= {run.arm for run in runs if run.method == "measure"}
    draw_arms({arm: own for arm, own in records.items() if arm in strict}, out / "arms.png")
    if against in records and any(record.trained for record in records[against]):
        predicting = [run.record for run in runs if run.method == "measure" and run.record.predicted is not None]
        draw_mean_interference(records[against], out / "interference.png", predicting)
        write_atomically(out / "interference.md", f"{interference_table(records[against])}\n")
    if pareto is not None:
        write_pareto_report(curve(runs, against, pareto), out)
    return table


def curve(runs: Sequence[FinishedRun], against: str, arms: str) -> dict[float, list[SkillRecord]]:
    """Records of the arms whose name begins with `arms`, by epsilon; the arm to compare with counts as infinity.

    Uses only orders and seeds that every epsilon has, so that points differ in epsilon alone; all if none is common.
    """
    chosen = _by([run for run in runs if run.arm.startswith(arms) and run.arm != against], lambda run: run.epsilon)
    repeats = set.intersection(*({run.repeat for run in own} for own in chosen.values())) if chosen else set()
    chosen[math.inf] = [run for run in runs if run.arm == against]
    by_epsilon = {
        epsilon: [run.record for run in own if run.repeat in repeats or not repeats] for epsilon, own in chosen.items()
    }
    return {epsilon: records for epsilon, records in by_epsilon.items() if records}


def _by(runs: Sequence[FinishedRun], key: Callable[[FinishedRun], object]) -> dict[Any, list[FinishedRun]]:
    groups = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return dict(groups)


def _percent(values: Sequence[float], runs: int, sign: str = "") -> str:
    return _cell([100 * value for value in values], runs, sign=sign)


def _cell(values: Sequence[float], runs: int, decimals: int = 1, sign: str = "") -> str:
    """Mean and interval of the finite values, out of `runs` runs."""
    known = [value for value in values if math.isfinite(value)]
    return over_runs(t_interval(known).text(decimals, sign), len(known), runs) if known else "-"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    add_study_options(parser)
    parser.add_argument(
        "--pareto", metavar="ARM", nargs="?", const="", help="also the curve over epsilon of arms that begin with ARM"
    )


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    finished = finished_runs(options.runs)
    runs = measured_runs(finished)
    if not runs:
        raise ReportError(f"{options.runs} holds no finished run")
    warn_of_different_starts(finished)
    draw_promises(finished, output_folder(options) / "promise")
    notes = [*forgetting_notes(runs), *cautions(finished)]
    cautioned = notes_of(options, finished, unmeasured(finished, runs))
    print(write_comparison(runs, options.against, output_folder(options), options.pareto, notes, cautioned))
