"""How many prompts of which skill each step of a staged protocol gets: tables of (steps, skills), made before training.

A table is a function of the settings alone, so a run that is continued in the middle of a stage goes on with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipe.training.settings import ProtocolSettings, Settings, SettingsError

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """Prompts of every step; each row of ``fresh + stored + memory`` sums to the batch size.

    stages: skills that each stage trains. stage: (steps,) its number, from 0. fresh: prompts from all of a skill's
    data. stored: prompts from its small fixed store, trained on (replay, refresh). memory: prompts from its store
    that only its constraint gradient sees. Tables are (steps, skills), in the order of ``skills``.
    """

    skills: list[str]
    stages: list[list[str]]
    stage: Counts
    fresh: Counts
    stored: Counts
    memory: Counts

    @property
    def steps(self) -> int:
        return len(self.stage)

    def earlier(self, step: int) -> list[str]:
        """Skills that stages before that of this step (from 1) trained and this one does not: what may be forgotten."""
        stage = int(self.stage[step - 1])
        before = dict.fromkeys(skill for skills in self.stages[:stage] for skill in skills)
        return [skill for skill in before if skill not in self.stages[stage]]

    def just_finished(self, step: int) -> list[str]:
        """Skills of the stage before, where this step (from 1) is the first of a stage; else none."""
        stage = int(self.stage[step - 1])
        first = stage > 0 and self.stage[step - 2] < stage
        return self.stages[stage - 1] if first else []


def make_plan(settings: Settings, batch: int) -> Plan | None:
    """The plan of these settings for batches of so many prompts; None for protocol mixed, which draws from all data.

    Raises:
        SettingsError: a step would have no prompt of the skill that it trains.
    """
    protocol, stages = settings.protocol, settings.stages
    if stages is None:
        return None
    skills = list(dict.fromkeys(skill for stage in stages for skill in stage))
    stage = np.repeat(np.arange(len(stages)), protocol.stage_steps)
    trained = np.array([[skill in part for skill in skills] for part in stages])
    before = np.array([np.any(trained[:number], axis=0) & ~trained[number] for number in range(len(stages))])
    memory = _memory(settings, skills, before)[stage]
    rest = batch - memory.sum(1)
    stored = deal(before[stage], np.where(before[stage].any(1), np.rint(rest * protocol.replay_share), 0).astype(int))
    fresh = deal(_weights(protocol, trained, stage), rest - stored.sum(1))
    if protocol.refresh_steps:
        last = slice(len(stage) - protocol.refresh_steps, None)
        parts = deal((before | trained)[stage[last]], rest[last])
        stored[last], fresh[last] = np.where(before[-1], parts, 0), np.where(before[-1], 0, parts)
    plan = Plan(skills, stages, stage, fresh, stored, memory)
    _refuse_empty_steps(plan, batch)
    return plan


def deal(weights: ArrayLike, totals: ArrayLike) -> Counts:
    """Whole numbers (steps, parts) whose rows sum to ``totals`` and whose sums over steps follow the weights.

    What rounding takes from a part in one step is given back in later ones. A row of weights that is all zero, and
    one whose total is 0, is dealt nothing.
    """
    shares = np.asarray(weights, dtype=np.float64)
    sums = shares.sum(1, keepdims=True)
    shares = np.divide(shares, sums, out=np.zeros_like(shares), where=sums > 0)
    counts = np.zeros(shares.shape, dtype=np.int64)
    owed = np.zeros(shares.shape[1])
    for step, total in enumerate(np.broadcast_to(totals, len(shares)) * (sums[:, 0] > 0)):
        exact = shares[step] * total
        counts[step] = np.floor(exact + 1e-9)
        left = total - counts[step].sum()
        wanting = np.where(shares[step] > 0, exact - counts[step] + owed, -np.inf)
        counts[step, np.argsort(-wanting, kind="stable")[:left]] += 1
        owed += exact - counts[step]
    return counts


def _memory(settings: Settings, skills: list[str], before: NDArray[np.bool_]) -> Counts:
    """Memory prompts of each stage: none where no projection asks for rollouts of protected skills."""
    projection = settings.projection
    if projection.method == "off" or projection.constraint_source == "solutions":
        return np.zeros(before.shape, dtype=np.int64)
    return (before & np.isin(skills, settings.protected)) * settings.protocol.memory_per_protected


def _weights(protocol: ProtocolSettings, trained: NDArray[np.bool_], stage: Counts) -> NDArray[np.float64]:
    """Share of each skill in the fresh prompts of each step (steps, skills), a level's share split over its skills.

    ``ordered``: the stage's own level. ``linear``: the share passes from one level to the next in a straight line.
    """
    levels = trained / trained.sum(1, keepdims=True)
    if protocol.mixing == "ordered" or len(levels) == 1:
        return levels[stage]
    progress = np.linspace(0, len(levels) - 1, len(stage))
    near = np.clip(1 - np.abs(progress[:, None] - np.arange(len(levels))), 0, 1)
    return near @ levels


def _refuse_empty_steps(plan: Plan, batch: int) -> None:
    short = np.flatnonzero(plan.fresh.sum(1) + plan.stored.sum(1) < 1)
    if len(short):
        taken = plan.memory[short[0]].sum()
        raise SettingsError(
            f"data.train_batch_size={batch} leaves no prompt to train on in stage {plan.stage[short[0]] + 1}: "
            f"{taken} are memory prompts. Raise it above {taken}, or lower protocol.memory_per_protected"
        )


def stage_names(stages: Sequence[Sequence[str]]) -> list[str]:
    """One name for each stage: the skills that it trains."""
    return ["+".join(skills) for skills in stages]
