"""Groups of samples of one prompt: scores and texts of siblings, and whether the group has any advantage.

verl spreads a group over reward workers, and only an agent loop sees a failed sample. One named actor, the board,
collects the scores and texts of each group.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import ray
import torch
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from rewards.counterfactual.plan import Plan
from rewards.counterfactual.siblings import Sibling

# Whether any sample of a group with these scores (of the judged samples) has a nonzero advantage.
GroupAdvantage = Callable[[Sequence[float]], bool]

# Limits on remembered groups, for those that never get complete and for late samples of those that are; the oldest is
# dropped first.
KEPT_GROUPS, KEPT_COMPLETE = 65_536, 1_024


@dataclass
class _Group:
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    samples: dict[int, tuple[float, Sibling]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)


class GroupBoard:
    """Samples post their scores here and wait for those of their siblings; also usable as an actor across processes.

    size: samples per group (rollout.n). patience: seconds that a sample waits for unfinished siblings.
    """

    def __init__(self, size: int, patience: float):
        self.size = size
        self.patience = patience
        self._groups: OrderedDict[str, _Group] = OrderedDict()
        self._complete: OrderedDict[str, _Group] = OrderedDict()

    async def meet(
        self, group: str, sample: int, score: float, solution: Sibling, wait: bool = True
    ) -> list[tuple[float, Sibling]] | None:
        """Scores and solutions of the group in sample order, without samples that ended before they had a
        score. None if some are unfinished after `patience`, or at once with `wait` false.
        """
        here = self._group(group)
        here.samples[sample] = (score, solution)
        self._check_complete(group, here)
        if not here.complete.is_set():
            try:
                await asyncio.wait_for(here.complete.wait(), self.patience if wait else 0.0)
            except TimeoutError:
                return None
        return [here.samples[index] for index in sorted(here.samples)]

    async def leave(self, group: str, sample: int) -> None:
        """Report that a sample has ended and will not meet its siblings: they do not wait for it."""
        here = self._group(group)
        here.ended.add(sample)
        self._check_complete(group, here)

    def _group(self, group: str) -> _Group:
        if group in self._complete:
            return self._complete[group]
        here = self._groups.setdefault(group, _Group())
        if len(self._groups) > KEPT_GROUPS:
            self._groups.popitem(last=False)
        return here

    def _check_complete(self, group: str, here: _Group) -> None:
        if len(here.samples.keys() | here.ended) >= self.size:
            here.complete.set()
            self._groups.pop(group, None)
            self._complete[group] = here
            if len(self._complete) > KEPT_COMPLETE:
                self._complete.popitem(last=False)


# verl's estimators that compare a score only with those of its group. Others use a critic's values or a greedy sample,
# or whiten over the batch.
GROUP_RELATIVE = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "opo", "gpg")


def is_relative(algorithm: Any) -> bool:
    """Whether the scores of a group alone decide its advantages. algorithm: verl's config group of that name."""
    return algorithm.adv_estimator in GROUP_RELATIVE and not algorithm.use_kl_in_reward


def group_advantage(algorithm: Any) -> GroupAdvantage | None:
    """The rule of a run's estimator; None if the scores of the group alone do not decide.

    algorithm: verl's config group of that name. With a KL penalty in the reward, samples with equal scores differ.
    """
    if not is_relative(algorithm):
        return None
    estimator = get_adv_estimator_fn(algorithm.adv_estimator)

    def has_advantage(scores: Sequence[float]) -> bool:
        if len(set(scores)) != 1:
            return len(scores) > 0
        # 1.0 replaces any nonzero score, since rounding makes the mean of some equal numbers differ from them.
        rewards = torch.full((len(scores), 1), float(scores[0] != 0.0))
        advantages, _ = estimator(
            token_level_rewards=rewards,
            response_mask=torch.ones_like(rewards),
            index=np.zeros(len(scores), dtype=np.int64),
            config=algorithm,
        )
        return bool(advantages.any())

    return has_advantage


BOARD = "credit_group_board"


def skips(config: Any) -> GroupAdvantage | None:
    """The rule by which a run decides from a group's scores whether to replay it; None: it replays all groups."""
    credit = config.credit
    if not credit.skip_equal_groups or credit.zero_advantage:
        return None
    return group_advantage(config.algorithm)


def needs_siblings(config: Any) -> bool:
    """Whether samples of a run need the scores or texts of their siblings."""
    credit = config.get("credit")
    if credit is None or credit.kind == "off":
        return False
    return Plan.of_config(credit).needs_siblings or skips(config) is not None


class SharedBoard:
    """A process's handle of the board actor, which starts on first use."""

    def __init__(self, config: Any):
        self.size = config.actor_rollout_ref.rollout.n
        self.patience = config.credit.patience
        self._actor: Any = None

    @property
    def actor(self) -> Any:
        if self._actor is None:
            options = {"name": BOARD, "get_if_exists": True, "max_concurrency": 100_000}
            board: Any = ray.remote(num_cpus=0)(GroupBoard)
            self._actor = board.options(**options).remote(self.size, self.patience)
        return self._actor

    async def meet(self, *sample: Any) -> list[tuple[float, Sibling]] | None:
        """`GroupBoard.meet`."""
        together: list[tuple[float, Sibling]] | None = await self.actor.meet.remote(*sample)
        return together

    def leave(self, group: str, sample: int) -> None:
        """`GroupBoard.leave`, without waiting for it to finish."""
        self.actor.leave.remote(group, sample)
