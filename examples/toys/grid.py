"""GRPO on programs of lines, with every mapping of credit: which combination needs the fewest updates where.

Shapes: N seeds, P prompts, G samples per prompt, L lines, C rows of the table, B = N P G programs.

The policy is a table of logits; each line of a prompt reads one row and is right with that row's chance, independently.
Prompts share rows partly: each draws its lines' rows at random, without repetition, from a table of four times as many
(`GridSetting.shared`), or has a table to itself. An update samples the group of each prompt, gives each line its
advantage and steps with Adam. Credit comes from `workers.credit.shape_advantages`, for all seeds in one call; it sees
replays and pass ratios only. Each line is a step of one token, and its place in the program is its key.

The study of `python -m examples.toys grid` is in `examples.toys.grid_study`.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from examples.toys.lines import CountedTests, Intervention, LineProblem, credits_of, deletion_credits
from workers.choices import CreditMapping, Normalization
from workers.credit import ablated, shape_advantages

_SOLVED = 0.8  # expected accuracy at which a run ends
_TABLE = 4  # rows of a shared table per line of a program
_BETAS, _FLOOR = (0.9, 0.999), 1e-8  # of Adam


@dataclass(frozen=True)
class GridSetting:
    """A problem, its reward for GRPO (all or nothing, or partial), prompts, samples per prompt, sharing of rows."""

    problem: LineProblem
    partial: bool
    prompts: int = 2
    group: int = 4
    shared: bool = True

    @property
    def name(self) -> str:
        table = "" if self.shared else ", own rows"
        return f"{self.problem.name}, {'partial' if self.partial else 'binary'}, {self.prompts}x{self.group}{table}"


@dataclass(frozen=True)
class GridArm:
    """GRPO (mapping None), with partial reward in every setting or not; or GRPO with credit.

    counted: the tests that credits count; other than ``all`` with the intervention ``delete`` only.
    """

    mapping: CreditMapping | None = None
    normalization: Normalization = "signed"
    intervention: Intervention = "delete"
    gate: bool = False
    shuffled: bool = False
    partial: bool = False
    counted: CountedTests = "all"

    @property
    def name(self) -> str:
        if self.mapping is None:
            return "grpo, partial reward" if self.partial else "grpo"
        parts = [self.mapping, self.normalization, self.intervention, "open" if self.gate else "shut"]
        return ", ".join(parts + ["shuffled"] * self.shuffled + [f"{self.counted} tests"] * (self.counted != "all"))


@dataclass(frozen=True)
class GridRun:
    """seeds: independent runs. limit: updates after which a run ends unsolved. seed: of the random numbers."""

    seeds: int = 200
    limit: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.limit < 1:
            raise ValueError(f"need seeds >= 1 and limit >= 1, got {self}")


class Table:
    """The policy's logits (N, C), trained by Adam, and the rows (N, P L) that each line of each prompt reads."""

    def __init__(self, logits_N_C: Tensor, rows_N_PL: Tensor, prompts: int):
        self.logits, self.rows = logits_N_C, rows_N_PL
        self.shape = (len(logits_N_C), prompts, rows_N_PL.shape[1] // prompts)
        self._moments = [torch.zeros_like(logits_N_C) for _ in _BETAS]
        self._updates = 0

    @staticmethod
    def of(setting: GridSetting, seeds: int, generator: torch.Generator) -> "Table":
        """That of a setting, in which all lines start alike."""
        shape, start = (seeds, setting.prompts, setting.problem.lines), setting.problem.start
        size = _TABLE * shape[2] if setting.shared else shape[1] * shape[2]
        rows = torch.arange(size).view(1, *shape[1:]).expand(shape) if not setting.shared else None
        drawn = torch.rand((*shape[:2], size), generator=generator).argsort(-1)[..., : shape[2]]
        logits = torch.full((seeds, size), math.log(start / (1 - start)))
        return Table(logits, (drawn if rows is None else rows).reshape(seeds, -1), setting.prompts)

    def chances(self) -> Tensor:
        """Chance of each line (N, P, L)."""
        return self.logits.gather(1, self.rows).view(self.shape).sigmoid()

    def ascend(self, gradient_N_P_L: Tensor, rate: float) -> None:
        flat = gradient_N_P_L.reshape(len(self.rows), -1)
        gradient = torch.zeros_like(self.logits).scatter_add_(1, self.rows, flat)
        self._updates += 1
        corrected = []
        for moment, beta, value in zip(self._moments, _BETAS, (gradient, gradient.square()), strict=True):
            moment.mul_(beta).add_(value, alpha=1 - beta)
            corrected.append(moment / (1 - beta**self._updates))
        self.logits += rate * corrected[0] / (corrected[1].sqrt() + _FLOOR)


def updates_to_solve(setting: GridSetting, arm: GridArm, rate: float, run: GridRun) -> NDArray[np.float64]:
    """Updates (N,) until the expected accuracy reaches 0.8; `run.limit` + 1 if it never does."""
    generator = torch.Generator().manual_seed(run.seed)
    table = Table.of(setting, run.seeds, generator)
    shape = ProgramShape(setting, run.seeds)
    needed = torch.full((run.seeds,), run.limit + 1.0)
    for update in range(run.limit + 1):
        chance_N_P_L = table.chances()
        solved = setting.problem.accuracy(chance_N_P_L).mean(1) >= _SOLVED
        needed = torch.where(solved, needed.clamp(max=update), needed)
        if (needed <= update).all():
            break
        table.ascend(sampled_gradient(setting, arm, chance_N_P_L, shape, generator, run.seed + update), rate)
    return needed.double().numpy()


def sampled_gradient(
    setting: GridSetting,
    arm: GridArm,
    chance_N_P_L: Tensor,
    shape: "ProgramShape",
    generator: torch.Generator,
    seed: int,
) -> Tensor:
    """The policy gradient (N, P, L) by the logits of the lines, of one group per prompt."""
    seeds, prompts, lines = chance_N_P_L.shape
    draws = torch.rand((seeds, prompts, setting.group, lines), generator=generator)
    right_N_P_G_L = (draws < chance_N_P_L[:, :, None]).float()
    advantages = line_advantages(setting, arm, right_N_P_G_L, shape, seed)
    return (advantages * (right_N_P_G_L - chance_N_P_L[:, :, None])).mean(2)


class ProgramShape:
    """Step ids, groups and keys of the B programs, the same in each update."""

    def __init__(self, setting: GridSetting, seeds: int):
        lines, groups = setting.problem.lines, seeds * setting.prompts
        self.groups = torch.arange(groups).repeat_interleave(setting.group)
        self.step_ids = torch.arange(lines).expand(len(self.groups), lines)
        self.step_keys = self.groups[:, None] * lines + torch.arange(lines)
        self.mask = torch.ones_like(self.step_ids)


def line_advantages(
    setting: GridSetting, arm: GridArm, right_N_P_G_L: Tensor, shape: ProgramShape, seed: int
) -> Tensor:
    """The advantage of each line (N, P, G, L)."""
    ratio_N_P_G = setting.problem.pass_ratio(right_N_P_G_L)
    partial = setting.partial or arm.partial
    advantages = group_advantages(ratio_N_P_G if partial else (ratio_N_P_G > 1 - 1e-4).float())
    plain = advantages[..., None].expand_as(right_N_P_G_L)
    if arm.mapping is None:
        return plain
    lines = setting.problem.lines
    if arm.counted == "all":
        credits = credits_of(setting.problem, right_N_P_G_L, arm.intervention)
    else:
        credits = deletion_credits(setting.problem, right_N_P_G_L, arm.counted)
    credits = credits.reshape(-1, lines)
    # All groups with advantage have the same root mean square, so that seeds do not influence each other.
    shaped, _ = shape_advantages(
        plain.reshape(-1, lines), ablated(credits, "shuffled" if arm.shuffled else "none", seed), shape.step_ids,
        shape.mask, strength=1.0, mapping=arm.mapping, normalization=arm.normalization, groups=shape.groups,
        step_keys=shape.step_keys, rewards=ratio_N_P_G.flatten(), zero_advantage=arm.gate,
    )  # fmt: skip
    return shaped.view_as(right_N_P_G_L)


def group_advantages(rewards: Tensor) -> Tensor:
    """(r - mean) / std over the last axis, the group, as in GRPO; 0 where all rewards are equal."""
    deviation, spread = rewards - rewards.mean(-1, keepdim=True), rewards.std(-1, keepdim=True)
    return torch.where(spread > 1e-4, deviation / (spread + 1e-6), 0.0)
