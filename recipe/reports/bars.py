"""Verdicts on the bars of docs/evidence/skill_safe_plan.md, from runs named ``<arm>.<order>.s<seed>``.

A block is a seed, its value the mean of its orders; a seed without a finished run of every order is left out. With
``--blocks order`` it is a seed in one order, for studies that give each seed one. Printed and written to ``bars.md``:
one arm's final average minus that of each other (paired t over blocks, Holm over those with the confirmatory arms, and
each order alone), what it lost and learned in each order, and a line per bar.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recipe.records.arms import ReportError, add_study_options, finished_runs, notes_of, output_folder
from recipe.records.intervals import Interval, t_interval
from recipe.records.online import holm, paired_p
from recipe.records.promise import Promise
from recipe.records.run_directory import write_atomically
from recipe.records.tables import markdown_table
from recipe.reports.skills import FinishedRun, measured_runs, unmeasured
from workers import skill_metrics

ARM, CONTROLS = "closed_loop", ("rehearsal", "random_gradients")
CONFIRMATORY = ("grpo", "ewc", "replay", "rehearsal", "random_gradients", "qp_solutions", "closed_loop")

FORGOTTEN, FORGOTTEN_HIGH = 0.03, 0.05
"""Largest forgetting, and largest upper end of its interval."""
BEHIND = -0.02
"""The lower end of the new skill's difference from plain GRPO must be above it."""
UNDONE = 0.10
"""Largest share of verified steps that are undone."""
LEVEL = 0.05
"""p after Holm below which a difference is beyond noise."""


@dataclass(frozen=True)
class RunOutcome:
    """The measures of one run, shares of 1. lost, learned: `SkillRecord.lost_since_stage`, `SkillRecord.learned`."""

    average: float
    forgetting: float
    new_skill: float
    lost: float
    learned: float


ArmRuns = Mapping[str, Mapping[str, RunOutcome]]
"""Runs of an arm: seed -> order -> outcome."""


@dataclass(frozen=True)
class Study:
    """The runs of each arm, and what a block is. apart: a seed in one order; else a seed in all orders of the study."""

    arms: Mapping[str, ArmRuns]
    apart: bool = False

    @property
    def orders(self) -> list[str]:
        """Those of all runs."""
        return sorted({order for own in self.arms.values() for orders in own.values() for order in orders})

    def blocks(self, arm: str, measure: str, order: str | None = None) -> dict[str, float]:
        """An arm's value in each of its whole blocks that measured it. order: count the runs of this one alone."""
        orders = self.orders if order is None else [order]
        groups = [[each] for each in orders] if self.apart else [orders]
        found = {
            seed if len(groups) == 1 else f"{seed}, {group[0]}": [getattr(runs[each], measure) for each in group]
            for group in groups
            for seed, runs in self.arms.get(arm, {}).items()
            if {*group} <= {*runs}
        }
        return {block: float(np.mean(values)) for block, values in found.items() if all(map(math.isfinite, values))}

    def gains(self, arm: str, against: str, measure: str, order: str | None = None) -> list[float]:
        """An arm's values minus those of another, over the blocks that both have."""
        own, other = (self.blocks(name, measure, order) for name in (arm, against))
        return [own[block] - other[block] for block in sorted(own) if block in other]


@dataclass(frozen=True)
class BlockContrast:
    """Paired difference of two arms in a measure over blocks. p: two-sided t-test, None for one block; holm: adjusted
    for the family of contrasts. by_order: the difference in each order alone."""

    arm: str
    against: str
    measure: str
    blocks: int
    gain: Interval
    p: float | None
    by_order: Mapping[str, Interval]
    holm: float | None = None


@dataclass(frozen=True)
class BarVerdict:
    """A bar, whether it is met (None: cannot be judged), and the numbers."""

    bar: str
    met: bool | None
    text: str

    @property
    def line(self) -> str:
        """One line of the report."""
        return f"- {self.bar}: {'not judged' if self.met is None else 'MET' if self.met else 'MISSED'}; {self.text}"


def contrast(study: Study, arm: str, against: str, measure: str) -> BlockContrast | None:
    """The difference of two arms over the blocks that both have; None without such a block."""
    gains = study.gains(arm, against, measure)
    if not gains:
        return None
    alone = {order: study.gains(arm, against, measure, order) for order in study.orders}
    by_order = {order: t_interval(values) for order, values in alone.items() if values}
    return BlockContrast(arm, against, measure, len(gains), t_interval(gains), paired_p(gains), by_order)


def contrasts(study: Study, arm: str, family: Sequence[str]) -> list[BlockContrast]:
    """The primary analysis: an arm's final average minus that of each other.

    family: arms whose contrasts Holm counts, with runs or without: a study that is not finished is no smaller one.
    """
    found = [made for other in study.arms if other != arm and (made := contrast(study, arm, other, "average"))]
    adjusted = holm([one.p if one.against in family else None for one in found], len(family))
    return [replace(one, holm=p) for one, p in zip(found, adjusted, strict=True)]


def verdicts(
    study: Study,
    arm: str,
    plain: str,
    controls: Sequence[str],
    promises: Sequence[Promise | None],
    family: Sequence[str],
) -> list[BarVerdict]:
    """A verdict for each bar. promises: of each run of the arm, None where it verified no step. family: Holm's."""
    primary = {one.against: one for one in contrasts(study, arm, family)}
    return [
        _forgetting("forgetting", study.blocks(arm, "forgetting")),
        _forgetting("loss since a skill's stage ended", study.blocks(arm, "lost")),
        _new_skill(plain, contrast(study, arm, plain, "new_skill")),
        *(_ahead(control, primary.get(control)) for control in controls),
        *_promise(promises),
    ]


def _forgetting(measure: str, blocks: Mapping[str, float]) -> BarVerdict:
    bar = f"{measure} at most {_points(FORGOTTEN)} points, upper end at most {_points(FORGOTTEN_HIGH)}"
    if not blocks:
        return BarVerdict(bar, None, "no whole block")
    found = t_interval(list(blocks.values()))
    met = None if found.high is None else found.estimate <= FORGOTTEN and found.high <= FORGOTTEN_HIGH
    return BarVerdict(bar, met, f"{found.scaled(100).text()} over {_blocks(len(blocks))}")


def _new_skill(plain: str, found: BlockContrast | None) -> BarVerdict:
    bar = f"new skill minus {plain}: lower end above {_points(BEHIND)} points"
    if found is None:
        return BarVerdict(bar, None, f"no block of both arms, or no run of {plain}")
    low = found.gain.low
    return BarVerdict(bar, None if low is None else low > BEHIND, _text(found))


def _ahead(control: str, found: BlockContrast | None) -> BarVerdict:
    bar = f"final average ahead of {control} (Holm, {LEVEL:.0%})"
    if found is None:
        return BarVerdict(bar, None, f"no block of both arms, or no run of {control}")
    met = None if found.holm is None else found.gain.estimate > 0 and found.holm < LEVEL
    return BarVerdict(bar, met, _text(found))


def _promise(promises: Sequence[Promise | None]) -> list[BarVerdict]:
    kept = [each for each in promises if each is not None]
    verified, levels, below, without, corrected, shrunk, undone = (
        sum(getattr(each, name) for each in kept)
        for name in ("verified", "levels", "below", "without", "corrected", "shrunk", "undone")
    )
    bars = ("no level below its line", f"at most {UNDONE:.0%} of steps undone")
    if len(kept) < len(promises) or not levels:
        return [BarVerdict(bar, None, f"{len(kept)} of {len(promises)} runs verified steps") for bar in bars]
    return [
        BarVerdict(
            bars[0],
            below == 0,
            f"{100 * (1 - below / levels):.2f}% of {levels} levels at it or above; {without} more had no line",
        ),
        BarVerdict(
            bars[1],
            undone <= UNDONE * verified,
            f"{100 * undone / verified:.1f}% of {verified} steps; {100 * corrected / verified:.1f}% corrected, "
            f"{100 * shrunk / verified:.1f}% shrunk{_kept(kept)}",
        ),
    ]


def _kept(promises: Sequence[Promise]) -> str:
    shares = [each.kept for each in promises if math.isfinite(each.kept)]
    return f"; {100 * float(np.mean(shares)):.1f}% of a step kept on average" if shares else ""


def contrast_table(found: Sequence[BlockContrast], orders: Sequence[str]) -> str:
    """The contrasts as a Markdown table, in points."""
    headers = ["contrast", "blocks", "final average", *(f"{order} alone" for order in orders), "p", "p, Holm"]
    rows = [
        [
            f"{one.arm} - {one.against}",
            str(one.blocks),
            one.gain.scaled(100).text(sign="+"),
            *(one.by_order[order].scaled(100).text(sign="+") if order in one.by_order else "-" for order in orders),
            *("-" if p is None else f"{p:.4f}" for p in (one.p, one.holm)),
        ]
        for one in found
    ]
    return markdown_table(headers, rows)


def order_table(study: Study, arm: str, plain: str) -> str:
    """What an arm forgot and lost since each skill's stage, and what it learned minus plain GRPO, in each order alone.

    In points. New skill: of the last stage; learned: each stage's skill at its end.
    """
    headers = ["order", "forgetting", "lost since its stage", f"new skill minus {plain}", f"learned minus {plain}"]
    rows = [
        [
            order,
            *(_mean(list(study.blocks(arm, measure, order).values())) for measure in ("forgetting", "lost")),
            *(_mean(study.gains(arm, plain, measure, order), "+") for measure in ("new_skill", "learned")),
        ]
        for order in study.orders
    ]
    return markdown_table(headers, rows)


def _mean(values: Sequence[float], sign: str = "") -> str:
    return t_interval(values).scaled(100).text(sign=sign) if values else "-"


def _text(found: BlockContrast) -> str:
    p = "" if found.holm is None else f", Holm p {found.holm:.4f}"
    return f"{found.gain.scaled(100).text(sign='+')} over {_blocks(found.blocks)}{p}"


def _blocks(count: int) -> str:
    return f"{count} block{'s' * (count != 1)}"


def _points(share: float) -> str:
    return f"{100 * share:g}"


def outcomes(runs: Sequence[FinishedRun], apart: bool = False) -> Study:
    """The measures of these runs by arm, seed and order. apart: as in `Study`."""
    grouped: dict[str, dict[str, dict[str, RunOutcome]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        order, _, seed = run.repeat.rpartition(".")
        record = run.record
        grouped[run.arm][seed][order] = RunOutcome(
            skill_metrics.average(record.matrix),
            record.mean_forgetting,
            record.new_skill,
            record.lost_since_stage,
            record.learned,
        )
    return Study({arm: dict(own) for arm, own in grouped.items()}, apart)


def bars_report(
    runs: Sequence[FinishedRun],
    arm: str,
    plain: str,
    controls: Sequence[str],
    confirmatory: Sequence[str] = CONFIRMATORY,
    apart: bool = False,
) -> str:
    """The contrasts of an arm and the verdicts, as Markdown.

    confirmatory: arms whose contrasts Holm counts. apart: a block is a seed in one order.
    """
    study = outcomes(runs, apart)
    promises = [run.promise for run in runs if run.arm == arm]
    whole = {} if apart else {name: len(study.blocks(name, "average")) for name in study.arms}
    short = [
        f"{name} ({count} of {len(study.arms[name])})" for name, count in whole.items() if count < len(study.arms[name])
    ]
    family = [name for name in confirmatory if name != arm]
    found = contrasts(study, arm, family)
    lacking = [name for name in family if name not in {one.against for one in found}]
    notes = [
        f"Seeds with every order, where not all have: {', '.join(short)}." if short else "",
        f"Incomplete: no block with {', '.join(lacking)}; Holm counts {len(family)} contrasts." if lacking else "",
    ]
    block = "a seed in one order" if apart else "a seed, every order"
    parts = [
        f"Points: means over blocks ({block}) [95% intervals, Student's t].",
        contrast_table(found, study.orders),
        order_table(study, arm, plain),
        *notes,
        "\n".join(each.line for each in verdicts(study, arm, plain, controls, promises, family)),
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
        "--blocks", choices=("seed", "order"), default="seed", help="a seed with every order (default), or one order"
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
    text = bars_report(runs, options.arm, options.against, options.controls, options.family, options.blocks == "order")
    text = "\n\n".join([text, *notes_of(options, finished, unmeasured(finished, runs))])
    out = output_folder(options)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "bars.md", f"{text}\n")
    print(text)
