"""Programs of lines that are right or wrong, with tests: planted problems whose credits are known.

Shapes: any leading dimensions, L lines, U tests. A line is right or wrong, and present or cut.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from rewards.counterfactual.interventions import Kind

Intervention = Literal[Kind, "both"]
INTERVENTIONS: tuple[Intervention, ...] = get_args(Intervention)
# Tests that the credit of a deletion counts (`deletion_credits`).
CountedTests = Literal["all", "varying", "known"]
COUNTED_TESTS: tuple[CountedTests, ...] = get_args(CountedTests)

# Tests that the harmful line breaks.
_BROKEN = 4


@dataclass(frozen=True)
class LineProblem:
    """A planted problem.

    start: chance of a line to be right before the first update.
    tests: from right (..., L) and present (..., L), 0 or 1 (or probabilities), to tests passed (..., U).
    """

    name: str
    lines: int
    start: float
    tests: Callable[[Tensor, Tensor], Tensor]

    def pass_ratio(self, right: Tensor, present: Tensor | None = None) -> Tensor:
        """Share of the tests passed (...), with all lines present or those given."""
        return self.tests(right, torch.ones_like(right) if present is None else present).mean(-1)

    def accuracy(self, chance: Tensor) -> Tensor:
        """Chance (...) that all tests pass, if each line is right with its chance (..., L), independently."""
        tests = self.tests(chance, torch.ones_like(chance))
        # In a chain the last test includes all others; elsewhere no two tests depend on the same chance.
        if self.tests is _chain:
            return tests[..., -1]
        if self.tests in (_harmful, _shared):
            return chance.prod(-1)
        return tests.prod(-1)


def _independent(right: Tensor, present: Tensor) -> Tensor:
    return right * present


def _chain(right: Tensor, present: Tensor) -> Tensor:
    return (right * present).cumprod(-1)


def _harmful(right: Tensor, present: Tensor) -> Tensor:
    """The first line has no test; if it is wrong and present, it breaks tests of the others."""
    sound = 1 - (1 - right[..., :1]) * present[..., :1]
    tests = (right * present)[..., 1:]
    return torch.cat([tests[..., :_BROKEN] * sound, tests[..., _BROKEN:]], -1)


def _redundant(right: Tensor, present: Tensor) -> Tensor:
    """Pairs of lines, of which one right one is enough."""
    works = right * present
    return 1 - (1 - works[..., ::2]) * (1 - works[..., 1::2])


def _shared(right: Tensor, present: Tensor) -> Tensor:
    """Each test needs the first line and one of the others."""
    works = right * present
    return works[..., :1] * works[..., 1:]


# 0.79 is the start of the micro suite's lines; with it the short programs would be solved at once.
PROBLEMS = (
    LineProblem("4 lines", 4, 0.6, _independent),
    LineProblem("16 lines", 16, 0.79, _independent),
    LineProblem("chain of 4", 4, 0.6, _chain),
    LineProblem("chain of 16", 16, 0.79, _chain),
    LineProblem("harmful line", 8, 0.7, _harmful),
    LineProblem("redundant lines", 8, 0.4, _redundant),
)

# Beside the grid: a line that every test needs, also those that only another line decides.
SHARED = LineProblem("shared line", 8, 0.7, _shared)


def credits_of(problem: LineProblem, right: Tensor, method: Intervention) -> Tensor:
    """Credit (..., G, L) of each line of G sampled programs (..., G, L), by replays and their pass ratios alone.

    ``delete``: R - R(without the line). ``truncate``: R(up to the line) - R(up to the one before). ``replace``: R -
    R(with the line of the sibling that passes most tests, the first of equal ones). ``both``: that of delete,
    or of replace where it is lower and below 0, or where delete is 0, as in `rewards.counterfactual.methods.combined`.
    """
    if method == "both":
        deleted, replaced = (credits_of(problem, right, one) for one in ("delete", "replace"))
        return torch.where((replaced < deleted.clamp(max=0)) | (deleted == 0), replaced, deleted)
    reward = problem.pass_ratio(right)
    lines = torch.arange(problem.lines)
    if method == "truncate":
        ends = range(problem.lines + 1)
        kept = [problem.pass_ratio(right, (lines < end).to(right).expand_as(right)) for end in ends]
        return torch.stack(kept, -1).diff(dim=-1)
    if method == "delete":
        changed = [problem.pass_ratio(right, (lines != cut).to(right).expand_as(right)) for cut in lines]
    else:
        best = _best_sibling(right, reward)
        changed = [problem.pass_ratio(torch.where(lines == own, best, right)) for own in lines]
    return reward[..., None] - torch.stack(changed, -1)


def deletion_credits(problem: LineProblem, right: Tensor, counted: CountedTests) -> Tensor:
    """Credit (..., G, L) by deletion, as the mean change over some tests of what each line decides.

    ``all``: every test. ``varying``: those that some siblings pass and others fail; all if there are none. ``known``:
    of those that deleting this line changes in some sibling, the ones that the program passes or the deletion repairs,
    since a deletion shows nothing about a test that fails with and without the line. 0 if there are none.
    """
    if counted == "all":
        return credits_of(problem, right, "delete")
    passed = problem.tests(right, torch.ones_like(right))
    lines = torch.arange(problem.lines)
    without = [problem.tests(right, (lines != cut).to(right).expand_as(right)) for cut in lines]
    change = passed[..., None, :] - torch.stack(without, -2)
    if counted == "varying":
        varies = passed.amax(-2, keepdim=True) != passed.amin(-2, keepdim=True)
        chosen = (varies | ~varies.any(-1, keepdim=True))[..., None, :].expand_as(change)
    else:
        chosen = (change != 0).any(-3, keepdim=True) & ((passed[..., None, :] == 1) | (change != 0))
    return (change * chosen).sum(-1) / chosen.sum(-1).clamp(min=1)


def _best_sibling(right: Tensor, reward: Tensor) -> Tensor:
    """For each program, the sibling with the highest reward (..., G, L)."""
    first = reward.argmax(-1, keepdim=True)
    second = reward.scatter(-1, first, -1.0).argmax(-1, keepdim=True)
    chosen = torch.where(torch.arange(reward.shape[-1]) == first, second, first)
    return right.gather(-2, chosen[..., None].expand_as(right))
