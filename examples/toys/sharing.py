"""When does credit pay? `python -m examples.toys sharing`: what the lines of programs share, and how many are sampled.

Programs of sixteen lines, all or nothing. A line is one of 24 operations, drawn anew for every prompt of every update.
Either all lines make the same error equally often, which one number of the policy governs, or one operation in three
is wrong half of the time and the others hardly ever, each by its own number. Both start at about 5% of programs
right. An update's samples are P prompts x G programs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from examples.toys.grid import GridArm, GridRun, GridSetting, ProgramShape, Table, sampled_gradient
from examples.toys.lines import PROBLEMS
from recipe.records.intervals import Interval, bootstrap_interval
from recipe.records.online import ratio_interval

(PROBLEM,) = (problem for problem in PROBLEMS if problem.name == "16 lines")
OPERATIONS, HARD = 24, 8
EASY_START, HARD_START = 0.99, 0.5
ERRORS = ("one for all lines", "of 8 in 24 operations")
SIZES = ((1, 2), (1, 4), (2, 4), (2, 8), (4, 16))
RATES = (0.05, 0.1, 0.2, 0.4)
_SOLVED = 0.5  # expected share of right programs at which a run ends

GRPO, PARTIAL = GridArm(), GridArm(partial=True)
CREDIT = GridArm("redistribute", "siblings", "delete", gate=True)
ARMS = (GRPO, PARTIAL, CREDIT)


@dataclass(frozen=True)
class SharingResult:
    """Mean updates of one arm until half of the programs are right, and their ratio to GRPO's (geometric mean)."""

    errors: str
    prompts: int
    group: int
    rate: float
    arm: str
    updates: Interval
    times_grpo: Interval | None


def study(run: GridRun) -> Iterator[SharingResult]:
    """Every arm at every rate, for all errors and sizes."""
    for errors in ERRORS:
        for prompts, group in SIZES:
            for rate in RATES:
                found = [updates_to_half(errors, prompts, group, arm, rate, run) for arm in ARMS]
                for arm, updates in zip(ARMS, found, strict=True):
                    mean, ratio = bootstrap_interval(updates), ratio_interval(updates.tolist(), found[0].tolist())
                    yield SharingResult(errors, prompts, group, rate, arm.name, mean, ratio)


def updates_to_half(
    errors: str, prompts: int, group: int, arm: GridArm, rate: float, run: GridRun
) -> NDArray[np.float64]:
    """Updates (N,) until half of the programs are right; `run.limit` + 1 if they never are."""
    setting = GridSetting(PROBLEM, partial=False, prompts=prompts, group=group)
    generator = torch.Generator().manual_seed(run.seed)
    logits = _start(errors, run.seeds)
    rows = (run.seeds, prompts * PROBLEM.lines)
    table = Table(logits, torch.zeros(rows, dtype=torch.long), prompts)
    shape = ProgramShape(setting, run.seeds)
    needed = torch.full((run.seeds,), run.limit + 1.0)
    for update in range(run.limit + 1):
        solved = table.logits.sigmoid().mean(1) ** PROBLEM.lines >= _SOLVED
        needed = torch.where(solved, needed.clamp(max=update), needed)
        if (needed <= update).all():
            break
        table.rows = torch.randint(logits.shape[1], rows, generator=generator)
        chance_N_P_L = table.chances()
        table.ascend(sampled_gradient(setting, arm, chance_N_P_L, shape, generator, run.seed + update), rate)
    return needed.double().numpy()


def _start(errors: str, seeds: int) -> torch.Tensor:
    """Logits (N, 1) or (N, operations)."""
    chance = torch.full((OPERATIONS,), EASY_START)
    chance[:HARD] = HARD_START
    if errors == ERRORS[0]:
        chance = chance.mean(0, keepdim=True)
    return chance.logit().repeat(seeds, 1)


def table(results: Sequence[SharingResult]) -> str:
    """A row per error and size, a column per rate: updates of the three arms, and credit's over GRPO's."""
    places = list(dict.fromkeys((row.errors, row.prompts, row.group) for row in results))
    rates = list(dict.fromkeys(row.rate for row in results))
    found = {(row.errors, row.prompts, row.group, row.rate, row.arm): row for row in results}
    head = ["errors", "prompts x samples", *(f"rate {rate:g}" for rate in rates)]
    lines = [f"|{'|'.join(head)}|", f"|---|---|{'---:|' * len(rates)}"]
    for place in places:
        cells = []
        for rate in rates:
            grpo, partial, credit = (found[*place, rate, arm.name] for arm in ARMS)
            means = " / ".join(f"{row.updates.estimate:.1f}" for row in (grpo, partial, credit))
            cells.append(f"{means}: {credit.times_grpo.text(2) if credit.times_grpo else '-'}")
        lines.append(f"|{'|'.join([place[0], f'{place[1]}x{place[2]}', *cells])}|")
    return "\n".join(lines)


def record(run: GridRun, results: Sequence[SharingResult]) -> dict[str, Any]:
    """The run and its results as JSON."""
    return {"run": asdict(run), "results": [asdict(row) for row in results]}
