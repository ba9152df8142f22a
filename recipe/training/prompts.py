"""Which rows of the data the steps of a plan train on, a function of plan, seed and step: nothing to save."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recipe.training.plan import Counts, Plan
from recipe.training.settings import SettingsError, SkillsSettings
from rewards.skills import skill_assigner


@dataclass(frozen=True)
class StepPrompts:
    """Rows of one step, and which of them are memory: generated for constraint gradients, not trained on."""

    rows: list[int]
    memory: list[bool]


class PromptSchedule:
    """Draws the prompts of a plan's steps: without repetition until a pool is used up, then in a new order.

    rows: the rows of each skill. store_size: how many of them, always the same, are kept to be seen again.

    Raises:
        SettingsError: a skill of the plan has no row.
    """

    def __init__(self, plan: Plan, rows: Mapping[str, Sequence[int]], store_size: int, seed: int):
        self.plan = plan
        self.seed = seed
        empty = [skill for skill in plan.skills if not rows.get(skill)]
        if empty:
            raise SettingsError(
                f"the protocol names {empty}, of which data.train_files have no row (of allowed length)"
            )
        self.pools = [np.asarray(rows[skill]) for skill in plan.skills]
        self.stores = [self._order(pool, skill, 0)[:store_size] for skill, pool in enumerate(self.pools)]
        # Memory and replay share a store, and go through it in turn.
        self._offsets = [_before(plan.fresh), _before(plan.stored + plan.memory)]

    def at(self, step: int) -> StepPrompts:
        """The prompts of a step (from 1): those trained on first, then memory.

        Raises:
            IndexError: a step outside the plan.
        """
        if not 1 <= step <= self.plan.steps:
            raise IndexError(f"step {step} is not in the plan of {self.plan.steps} steps")
        row = step - 1
        trained: list[int] = []
        memory: list[int] = []
        for skill in range(len(self.plan.skills)):
            fresh, stored, kept = (
                int(table[row, skill]) for table in (self.plan.fresh, self.plan.stored, self.plan.memory)
            )
            trained += self._draw(self.pools[skill], skill, 1, int(self._offsets[0][row, skill]), fresh)
            again = self._draw(self.stores[skill], skill, 2, int(self._offsets[1][row, skill]), stored + kept)
            trained += again[:stored]
            memory += again[stored:]
        if np.count_nonzero((self.plan.fresh + self.plan.stored)[row]) > 1:
            # else each of several mini-batches would be of one skill
            trained = self._order(np.asarray(trained), 3, step).tolist()
        return StepPrompts([*trained, *memory], [False] * len(trained) + [True] * len(memory))

    def _draw(self, pool: np.ndarray, skill: int, kind: int, offset: int, count: int) -> list[int]:
        drawn: list[int] = []
        while len(drawn) < count:
            epoch, place = divmod(offset + len(drawn), len(pool))
            order = self._order(pool, skill, kind, epoch)
            drawn += order[place : place + count - len(drawn)].tolist()
        return drawn

    def _order(self, pool: np.ndarray, *key: int) -> np.ndarray:
        return np.random.default_rng([self.seed, *key]).permutation(pool)


def rows_by_skill(dataset: Any, skills: SkillsSettings) -> dict[str, list[int]]:
    """The rows of each skill, in the order of the data (verl's dataset, after its filter of long prompts)."""
    skill_of = skill_assigner(skills.by, skills.column, skills.function)
    found: dict[str, list[int]] = defaultdict(list)
    for row, fields in enumerate(dataset):
        found[skill_of(fields)].append(row)
    return dict(found)


def _before(table: Counts) -> Counts:
    """Prompts drawn before each step."""
    return np.cumsum(table, axis=0) - table
