"""Verdicts on the bars of docs/evidence/skill_safe_plan.md, from runs named ``<arm>.<order>.s<seed>``.

A block is a seed, its value the mean of its orders; a seed without a finished run of every order is left out. Printed
and written to ``bars.md``: one arm's final average minus that of each other (paired t over blocks, Holm over those with
the confirmatory arms, and each order alone), its forgetting and new skill in each order, and a line per bar.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence

from recipe.records.arms import ReportError, add_study_options, finished_runs, notes_of, output_folder
from recipe.records.bars import (
    ArmRuns,
    RunOutcome,
    block_means,
    contrast_table,
    contrasts,
    order_table,
    orders_of,
    verdicts,
)
from recipe.records.run_directory import write_atomically
from recipe.reports.skills import FinishedRun, measured_runs, unmeasured
from workers import skill_metrics

ARM, CONTROLS = "closed_loop", ("rehearsal", "random_gradients")
CONFIRMATORY = ("grpo", "ewc", "replay", "rehearsal", "random_gradients", "qp_solutions", "closed_loop")


def outcomes(runs: Sequence[FinishedRun]) -> dict[str, ArmRuns]:
    """The measures of these runs by arm, seed and order."""
    grouped: dict[str, dict[str, dict[str, RunOutcome]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        order, _, seed = run.repeat.rpartition(".")
        record = run.record
        grouped[run.arm][seed][order] = RunOutcome(
            skill_metrics.average(record.matrix), record.mean_forgetting, record.new_skill
        )
    return {arm: dict(own) for arm, own in grouped.items()}


def bars_report(
    runs: Sequence[FinishedRun],
    arm: str,
    plain: str,
    controls: Sequence[str],
    confirmatory: Sequence[str] = CONFIRMATORY,
) -> str:
    """The contrasts of an arm and the verdicts, as Markdown. confirmatory: arms whose contrasts Holm counts."""
    arms = outcomes(runs)
    orders = orders_of(arms)
    promises = [run.promise for run in runs if run.arm == arm]
    whole = {name: len(block_means(own, "average", orders)) for name, own in arms.items()}
    short = [f"{name} ({count} of {len(arms[name])})" for name, count in whole.items() if count < len(arms[name])]
    family = [name for name in confirmatory if name != arm]
    found = contrasts(arms, arm, family)
    lacking = [name for name in family if name not in {one.against for one in found}]
    notes = [
        f"Seeds with every order, where not all have: {', '.join(short)}." if short else "",
        f"Incomplete: no block with {', '.join(lacking)}; Holm counts {len(family)} contrasts." if lacking else "",
    ]
    parts = [
        "Points: means over blocks (a seed, both orders) [95% intervals, Student's t].",
        contrast_table(found, orders),
        order_table(arms, arm, plain),
        *notes,
        "\n".join(each.line for each in verdicts(arms, arm, plain, controls, promises, family)),
    ]
    return "\n\n".join(filter(None, parts))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    add_study_options(parser)
    parser.add_argument("--arm", default=ARM, help=f"the arm that is judged (default {ARM})")
    parser.add_argument(
        "--controls", nargs="*", default=CONTROLS, help=f"arms to be ahead of (default {' '.join(CONTROLS)})"
    )
    parser.add_argument(
        "--family", nargs="+", default=CONFIRMATORY,
        help=f"arms whose contrasts Holm counts (default {' '.join(CONFIRMATORY)})",
    )  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """Run the subcommand."""
    finished = finished_runs(options.runs)
    runs = measured_runs(finished)
    if not any(each.arm == options.arm for each in runs):
        raise ReportError(f"{options.runs} holds no finished run of {options.arm}")
    text = bars_report(runs, options.arm, options.against, options.controls, options.family)
    text = "\n\n".join([text, *notes_of(options, finished, unmeasured(finished, runs))])
    out = output_folder(options)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "bars.md", f"{text}\n")
    print(text)
