"""The schedule of skills: how many prompts of which skill each step gets, and the rows of the data for them.

`PromptPlan` tables have shape (steps, skills). Everything here is a function of the settings, the seed and the step, so
a resumed run continues in the middle of a stage; only weights of skills and mastered prompts have a saved state.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipe.records.run_directory import write_atomically
from recipe.settings import ProtocolSettings, Settings, SettingsError, SkillsSettings
from recipe.training.failure_buffer import MasteredPrompts
from recipe.training.skill_weights import SkillWeights, zero_gradient_shares
from rewards.skills import skill_assigner, task_of

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class PromptPlan:
    """Prompts of every step; each row of ``fresh + stored + memory`` sums to the batch size.

    stages: skills that each stage trains. protected: skills that projection may protect in each stage. stage: (steps,)
    stage number of each step, from 0. fresh: prompts from all of a skill's data. stored: prompts from its small fixed
    store, trained on (replay, refresh). memory: prompts from its store, used for its constraint gradient only. Tables
    are (steps, skills), in the order of ``skills``: those of the stages, then those that are only protected.
    """

    skills: list[str]
    stages: list[list[str]]
    protected: list[list[str]]
    stage: Counts
    fresh: Counts
    stored: Counts
    memory: Counts

    @property
    def steps(self) -> int:
        return len(self.stage)

    def guarded(self, step: int) -> list[str]:
        """Skills that projection may protect in this step (from 1)."""
        return self.protected[int(self.stage[step - 1])]

    def earlier(self, step: int) -> list[str]:
        """Skills of all earlier stages that the stage of this step (from 1) does not train."""
        stage = int(self.stage[step - 1])
        return [skill for skill in dict.fromkeys(chain(*self.stages[:stage])) if skill not in self.stages[stage]]

    def just_finished(self, step: int) -> list[str]:
        """Skills of the previous stage if this step (from 1) is the first of a stage; else none."""
        stage = int(self.stage[step - 1])
        first = stage > 0 and self.stage[step - 2] < stage
        return self.stages[stage - 1] if first else []


def make_plan(settings: Settings, batch: int) -> PromptPlan | None:
    """The plan of these settings for batches of `batch` prompts; None for protocol mixed, which has no stages.

    Raises:
        SettingsError: a step has no new prompt to train on, or projection has no skill to protect.
    """
    protocol, stages = settings.protocol, settings.stages
    if stages is None:
        return None
    named = [] if settings.projection.protected is None else settings.protected
    skills = list(dict.fromkeys([*chain(*stages), *named]))
    stage = np.repeat(np.arange(len(stages)), protocol.stage_steps)
    # trained, before, protects: (stages, skills); memory, stored, fresh: (steps, skills).
    trained = np.array([[skill in part for skill in skills] for part in stages])
    before = np.array([np.any(trained[:number], axis=0) & ~trained[number] for number in range(len(stages))])
    protects = (before | np.isin(skills, named)) & ~trained & np.isin(skills, settings.protected)
    memory = _memory(settings, protects)[stage]
    rest = batch - memory.sum(1)
    share = protocol.replay_share
    replay_or_fresh = np.outer(before.any(1), [share, 1 - share])  # zeros where there is nothing to replay
    replayed = deal(replay_or_fresh[stage], rest)[:, 0]
    stored = deal(before[stage], replayed)
    fresh = deal(_weights(protocol, trained, stage), rest - stored.sum(1))
    if protocol.refresh_steps:
        last = slice(len(stage) - protocol.refresh_steps, None)
        parts = deal((before | trained)[stage[last]], rest[last])
        stored[last], fresh[last] = np.where(before[-1], parts, 0), np.where(before[-1], 0, parts)
    protected = [[skill for skill, kept in zip(skills, row, strict=True) if kept] for row in protects]
    plan = PromptPlan(skills, stages, protected, stage, fresh, stored, memory)
    _refuse_empty_steps(plan, batch, protocol.refresh_steps)
    _refuse_idle_protection(settings, named, plan)
    return plan


def mixed_plan(sizes: Mapping[str, int], batch: int, steps: int) -> PromptPlan:
    """A plan whose batches have at least one prompt of every skill; the rest follows each skill's share of the rows.

    sizes: rows of each skill.

    Raises:
        SettingsError: a batch has fewer prompts than there are skills.
    """
    if batch < len(sizes):
        raise SettingsError(
            f"protocol.every_skill: data.train_batch_size={batch} is too small for a prompt of each of {len(sizes)} "
            f"skills. Raise it, or set protocol.every_skill=false"
        )
    rows = np.array(list(sizes.values()))
    wanted = np.maximum(rows / rows.sum() * batch - 1, 0)
    fresh = 1 + deal(np.tile(wanted, (steps, 1)), batch - len(rows))
    none = np.zeros_like(fresh)
    return PromptPlan([*sizes], [[*sizes]], [[]], np.zeros(steps, dtype=np.int64), fresh, none, none)


def deal(weights: ArrayLike, totals: ArrayLike) -> Counts:
    """Integers (steps, parts) whose rows sum to ``totals`` and whose sums over steps follow the weights.

    Later steps make up for what rounding takes from a part. A row whose weights or total are 0 gets zeros.
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


def _memory(settings: Settings, protects: NDArray[np.bool_]) -> Counts:
    """Memory prompts (stages, skills): none unless the constraints use rollouts of protected skills."""
    wanted = settings.projection.constraint_source != "solutions"
    return protects * (settings.protocol.memory_per_protected if wanted else 0)


def _weights(protocol: ProtocolSettings, trained: NDArray[np.bool_], stage: Counts) -> NDArray[np.float64]:
    """Share of each skill in the fresh prompts of each step (steps, skills).

    A level's share is split evenly over its skills. ``ordered``: all to the stage's own level. ``linear``: linear
    transition from one level to the next.
    """
    levels: NDArray[np.float64] = trained / trained.sum(1, keepdims=True)
    if protocol.mixing == "ordered" or len(levels) == 1:
        return levels[stage]
    progress = np.linspace(0, len(levels) - 1, len(stage))
    near = np.clip(1 - np.abs(progress[:, None] - np.arange(len(levels))), 0, 1)
    return near @ levels


def _refuse_empty_steps(plan: PromptPlan, batch: int, refresh_steps: int) -> None:
    """Raise a SettingsError if a step has no new prompt to train on."""
    new = plan.fresh.sum(1)
    refreshed = slice(plan.steps - refresh_steps, None)
    new[refreshed] += plan.stored[refreshed].sum(1)
    short = np.flatnonzero(new < 1)
    if len(short):
        memory, stored = plan.memory[short[0]].sum(), plan.stored[short[0]].sum()
        raise SettingsError(
            f"data.train_batch_size={batch} leaves no new prompt to train on in stage {plan.stage[short[0]] + 1}: "
            f"{memory} are memory prompts and {stored} replayed ones. Raise it, or lower protocol.memory_per_protected "
            f"or protocol.replay_share"
        )


def _refuse_idle_protection(settings: Settings, named: Sequence[str], plan: PromptPlan) -> None:
    """Raise a SettingsError if projection would protect nothing, or not all of the skills that it names."""
    idle = sorted(set(named) - {*chain(*plan.protected)})
    if idle:
        raise SettingsError(
            f"projection.protected names {idle}, which every stage trains, so they are never protected. Remove them"
        )
    untrained = sorted(set(named) - {*chain(*plan.stages)})
    if untrained and settings.projection.constraint_source == "solutions":
        raise SettingsError(
            f"projection.protected names {untrained}, which no stage trains, so they will have no accepted solutions. "
            f"Set projection.constraint_source=rollouts or both"
        )
    if settings.projection.method != "off" and not any(plan.protected):
        raise SettingsError(
            f"projection={settings.projection.method} would protect nothing: no stage has an earlier one with other "
            f"skills ({plan.stages}). Name the skills to keep in projection.protected, or use projection=off"
        )


@dataclass(frozen=True)
class StepPrompts:
    """Rows of one step, with a flag for memory: answered for constraint gradients, not trained on."""

    rows: list[int]
    memory: list[bool]


class PromptSchedule:
    """Draws the prompts of a plan's steps: without repetition until a pool is used up, then in a new order.

    rows: the rows of each skill. store_size: rows per skill in its fixed store, for replay and memory. weights: decide
    how many prompts of each skill a step gets; None: the plan. mastered: replayed first; None: only the store is.
    row_of: the row of each task.

    Raises:
        SettingsError: a skill of the plan has no row.
    """

    FILE = "schedule.json"

    def __init__(
        self,
        plan: PromptPlan,
        rows: Mapping[str, Sequence[int]],
        store_size: int,
        seed: int,
        *,
        weights: SkillWeights | None = None,
        mastered: MasteredPrompts | None = None,
        row_of: Mapping[str, int] | None = None,
    ):
        self.plan = plan
        self.seed = seed
        self.weights, self.mastered, self._row_of = weights, mastered, dict(row_of or {})
        self._weighed: dict[int, list[int]] = {}  # prompts of each skill by step, where the weights decided
        empty = [skill for skill in plan.skills if not rows.get(skill)]
        if empty:
            raise SettingsError(
                f"the protocol names {empty}, for which data.train_files have no row (within data.max_prompt_length)"
            )
        self.pools = [np.asarray(rows[skill]) for skill in plan.skills]
        self.stores = [self._order(pool, skill, 0)[:store_size] for skill, pool in enumerate(self.pools)]
        # Memory and replay share a store and take turns in it, so they share an offset.
        self._offsets = [_before(plan.fresh), _before(plan.stored + plan.memory)]

    def at(self, step: int) -> StepPrompts:
        """The prompts of a step (from 1): those trained on first, then memory.

        Raises:
            IndexError: a step outside the plan.
        """
        if not 1 <= step <= self.plan.steps:
            raise IndexError(f"step {step} is not in the plan of {self.plan.steps} steps")
        row = step - 1
        self._weigh(step)
        trained: list[int] = []
        memory: list[int] = []
        for skill in range(len(self.plan.skills)):
            fresh, stored, protected = (
                int(table[row, skill]) for table in (self.plan.fresh, self.plan.stored, self.plan.memory)
            )
            trained += self._draw(self.pools[skill], skill, 1, int(self._offsets[0][row, skill]), fresh)
            again = self._draw(self.stores[skill], skill, 2, int(self._offsets[1][row, skill]), stored + protected)
            trained += self._reviewed(skill, int(self._offsets[1][row, skill]), again[:stored])
            memory += again[stored:]
        if np.count_nonzero((self.plan.fresh + self.plan.stored)[row]) > 1:
            # Otherwise each of several mini-batches would hold a single skill.
            trained = self._order(np.asarray(trained), 3, step).tolist()
        return StepPrompts([*trained, *memory], [False] * len(trained) + [True] * len(memory))

    @property
    def learns(self) -> bool:
        """Whether the samples of a step decide later prompts."""
        return self.weights is not None or self.mastered is not None

    def _weigh(self, step: int) -> None:
        """Set a step's prompts by the weights, once."""
        if self.weights is None or step in self._weighed:
            return
        self._weighed[step] = self.weights.prompts(int(self.plan.fresh[step - 1].sum()))
        self._replan()

    def _replan(self) -> None:
        for step, counts in self._weighed.items():
            self.plan.fresh[step - 1] = counts
        self._offsets[0] = _before(self.plan.fresh)

    def _reviewed(self, skill: int, offset: int, stored: list[int]) -> list[int]:
        """Rows to replay: mastered ones in turn, none twice, and what these lack from the store."""
        tasks = [] if self.mastered is None else self.mastered.of(self.plan.skills[skill])
        known = [self._row_of[task] for task in tasks if task in self._row_of]
        turned = [known[(offset + place) % len(known)] for place in range(min(len(known), len(stored)))]
        others = [row for row in stored if row not in turned]
        return [*turned, *others[: len(stored) - len(turned)]]

    def record(
        self, infos: Sequence[Mapping[str, Any]], prompts: Sequence[str], tasks: Sequence[str]
    ) -> dict[str, float]:
        """Record a step's samples, aligned lists; returns metrics. infos: of the rewards. prompts: one for each group.

        Samples without a verified reward are unknown.
        """
        rights = [None if not info or info.get("masked") else info.get("acc", 0.0) >= 1.0 for info in infos]
        metrics: dict[str, float] = {}
        if self.weights is not None:
            rights_of = defaultdict(list)
            for info, right in zip(infos, rights, strict=True):
                if right is not None:
                    rights_of[str(info["skill"])].append(right)
            means = {skill: sum(found) / len(found) for skill, found in rights_of.items()}
            self.weights.update(means, zero_gradient_shares(infos, prompts))
            metrics |= self.weights.metrics()
        if self.mastered is not None:
            skills = (str(info.get("skill")) for info in infos)
            self.mastered.record(zip(skills, tasks, rights, strict=True))
            metrics |= {f"protocol/mastered/{skill}": float(len(self.mastered.of(skill))) for skill in self.plan.skills}
        return metrics

    def save(self, folder: Path) -> None:
        """Write weights and mastered prompts into a checkpoint's folder; nothing where there are neither."""
        if self.weights is None and self.mastered is None:
            return
        state: dict[str, Any] = {"weighed": self._weighed}
        state |= {} if self.weights is None else {"weights": self.weights.state()}
        state |= {} if self.mastered is None else {"mastered": self.mastered.state()}
        write_atomically(folder / self.FILE, json.dumps(state))

    def load(self, folder: Path) -> None:
        """Load what `save` wrote; a checkpoint without it leaves all as new."""
        if not (folder / self.FILE).exists():
            return
        state = json.loads((folder / self.FILE).read_text())
        if self.weights is not None and "weights" in state:
            self.weights.restore(state["weights"])
            self._weighed = {int(step): counts for step, counts in state["weighed"].items()}
            self._replan()
        if self.mastered is not None and "mastered" in state:
            self.mastered.restore(state["mastered"])

    def _draw(self, pool: np.ndarray, skill: int, kind: int, offset: int, count: int) -> list[int]:
        drawn: list[int] = []
        while len(drawn) < count:
            epoch, place = divmod(offset + len(drawn), len(pool))
            order = self._order(pool, skill, kind, epoch)
            drawn += order[place : place + count - len(drawn)].tolist()
        return drawn

    def _order(self, pool: np.ndarray, *key: int) -> np.ndarray:
        return np.random.default_rng([self.seed, *key]).permutation(pool)


def make_schedule(settings: Settings, dataset: Any, batch: int, steps: int, seed: int | None) -> PromptSchedule | None:
    """The schedule of these settings; None for protocol mixed without every_skill.

    dataset: verl's, after its filter of long prompts. steps, seed: of the run, where the protocol has none.

    Raises:
        SettingsError: as `make_plan`, `mixed_plan` and `PromptSchedule`.
    """
    protocol = settings.protocol
    plan = make_plan(settings, batch)
    if plan is None and not protocol.every_skill:
        return None
    rows = rows_by_skill(dataset, settings.skills)
    sizes = {skill: len(own) for skill, own in sorted(rows.items())}
    mixed = plan is None
    plan = mixed_plan(sizes, batch, steps) if plan is None else plan
    worst = protocol.weights == "worst"
    weights = SkillWeights(plan.skills, protocol.weight_rate, protocol.weight_trade) if worst else None
    review = protocol.replay_from == "mastered"
    return PromptSchedule(
        plan,
        rows,
        protocol.memory_size,
        (seed or 0) if mixed else protocol.seed,
        weights=weights,
        mastered=MasteredPrompts(protocol.memory_size) if review else None,
        row_of={task_of(fields["extra_info"]): row for row, fields in enumerate(dataset)} if review else None,
    )


def rows_by_skill(dataset: Any, skills: SkillsSettings) -> dict[str, list[int]]:
    """The rows of each skill, in the order of verl's dataset after its filter of long prompts."""
    skill_of = skill_assigner(skills.by, skills.column, skills.function)
    rows: dict[str, list[int]] = defaultdict(list)
    for row, fields in enumerate(dataset):
        rows[skill_of(fields)].append(row)
    return dict(rows)


def _before(table: Counts) -> Counts:
    """Prompts drawn before each step (steps, skills)."""
    return np.cumsum(table, axis=0) - table
