"""When does credit pay? `python -m examples.toys sharing`: what the lines of programs share, and how many are sampled.

Programs of sixteen lines, from about 5% of them right to half, and of four lines, from about 55% to 80%; all or
nothing. A line is one of 24 operations, drawn anew for every prompt of every update. Either all lines make the same
error equally often, which one number of the policy governs, or one operation in three is often wrong and the others
hardly ever, each by its own number. An update's samples are P prompts x G programs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from examples.toys.grid import GridArm, GridRun, GridSetting, ProgramShape, Table, sampled_gradient
from examples.toys.lines import PROBLEMS, LineProblem
from recipe.records.intervals import Interval, bootstrap_interval
from recipe.records.online import ratio_interval

OPERATIONS, HARD = 24, 8
EASY_START = 0.99
ERRORS = ("one for all lines", "of 8 in 24 operations")
RATES = (0.05, 0.1, 0.2, 0.4)

GRPO, PARTIAL = GridArm(), GridArm(partial=True)
CREDIT = GridArm("redistribute", "siblings", "delete", gate=True)
ARMS = (GRPO, PARTIAL, CREDIT)


@dataclass(frozen=True)
class Programs:
    """Programs of a problem of `lines.PROBLEMS`, and how well the policy writes them at the start and in the end.

    hard_start: chance that a line of a hard operation is right at the start. solved: expected share of right programs
    at which a run ends. sizes: prompts and programs of each in an update.
    """

    name: str
    hard_start: float
    solved: float
    sizes: Sequence[tuple[int, int]]

    @property
    def problem(self) -> LineProblem:
        return next(problem for problem in PROBLEMS if problem.name == self.name)


SIXTEEN = Programs("16 lines", 0.5, 0.5, ((1, 2), (1, 4), (2, 4), (2, 8), (4, 16)))
FOUR = Programs("4 lines", 0.606, 0.8, ((1, 4), (2, 4), (4, 16)))


@dataclass(frozen=True)
class SharingResult:
    """Mean updates of one arm until enough programs are right, and their ratio to GRPO's (geometric mean)."""

    programs: str
    errors: str
    prompts: int
    group: int
    rate: float
    arm: str
    updates: Interval
    times_grpo: Interval | None


def study(run: GridRun) -> Iterator[SharingResult]:
    """Every arm at every rate, for all programs, errors and sizes."""
    for programs in (SIXTEEN, FOUR):
        for errors, size, rate in product(ERRORS, programs.sizes, RATES):
            found = [updates_to_solve(programs, errors, size, arm, rate, run) for arm in ARMS]
            for arm, updates in zip(ARMS, found, strict=True):
                mean, ratio = bootstrap_interval(updates), ratio_interval(updates.tolist(), found[0].tolist())
                yield SharingResult(programs.name, errors, *size, rate, arm.name, mean, ratio)


def updates_to_solve(
    programs: Programs, errors: str, size: tuple[int, int], arm: GridArm, rate: float, run: GridRun
) -> NDArray[np.float64]:
    """Updates (N,) of `size` until enough programs are right; `run.limit` + 1 if they never are."""
    problem, (prompts, group) = programs.problem, size
    setting = GridSetting(problem, partial=False, prompts=prompts, group=group)
    generator = torch.Generator().manual_seed(run.seed)
    logits = _start(programs, errors, run.seeds)
    rows = (run.seeds, prompts * problem.lines)
    table = Table(logits, torch.zeros(rows, dtype=torch.long), prompts)
    shape = ProgramShape(setting, run.seeds)
    needed = torch.full((run.seeds,), run.limit + 1.0)
    for update in range(run.limit + 1):
        solved = table.logits.sigmoid().mean(1) ** problem.lines >= programs.solved
        needed = torch.where(solved, needed.clamp(max=update), needed)
        if (needed <= update).all():
            break
        table.rows = torch.randint(logits.shape[1], rows, generator=generator)
        chance_N_P_L = table.chances()
        table.ascend(sampled_gradient(setting, arm, chance_N_P_L, shape, generator, run.seed + update), rate)
    return needed.double().numpy()


def _start(programs: Programs, errors: str, seeds: int) -> torch.Tensor:
    """Logits (N, 1) or (N, operations)."""
    chance = torch.full((OPERATIONS,), EASY_START)
    chance[:HARD] = programs.hard_start
    if errors == ERRORS[0]:
        chance = chance.mean(0, keepdim=True)
    return chance.logit().repeat(seeds, 1)


def table(results: Sequence[SharingResult]) -> str:
    """A row per programs, error and size, a column per rate: updates of the three arms, and credit's over GRPO's."""
    places = list(dict.fromkeys((row.programs, row.errors, row.prompts, row.group) for row in results))
    rates = list(dict.fromkeys(row.rate for row in results))
    found = {(row.programs, row.errors, row.prompts, row.group, row.rate, row.arm): row for row in results}
    head = ["programs", "errors", "prompts x samples", *(f"rate {rate:g}" for rate in rates)]
    lines = [f"|{'|'.join(head)}|", f"|---|---|---|{'---:|' * len(rates)}"]
    for place in places:
        cells = []
        for rate in rates:
            grpo, partial, credit = (found[*place, rate, arm.name] for arm in ARMS)
            means = " / ".join(f"{row.updates.estimate:.1f}" for row in (grpo, partial, credit))
            cells.append(f"{means}: {credit.times_grpo.text(2) if credit.times_grpo else '-'}")
        *what, prompts, group = place
        lines.append(f"|{'|'.join([*map(str, what), f'{prompts}x{group}', *cells])}|")
    return "\n".join(lines)


def record(run: GridRun, results: Sequence[SharingResult]) -> dict[str, Any]:
    """The run and its results as JSON."""
    return {"run": asdict(run), "results": [asdict(row) for row in results]}
