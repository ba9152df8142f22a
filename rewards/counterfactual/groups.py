"""Samples of one prompt: what siblings scored and wrote, and whether the group has any advantage.

verl spreads a group over reward workers, and only an agent loop knows of a failed sample: one named actor, the board,
brings them together.
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

from rewards.counterfactual.interventions import Changed

# Whether any sample of a group with these scores (of those that could be judged) has an advantage other than 0.
GroupAdvantage = Callable[[Sequence[float]], bool]

# Groups remembered at once, where nobody says that their samples have ended; the oldest goes first.
KEPT_GROUPS = 65_536


@dataclass
class _Group:
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    samples: dict[int, tuple[float, Changed]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)


class GroupBoard:
    """Where samples post their scores and wait for their siblings'; also usable as an actor that processes share.

    size: samples of a group (rollout.n). patience: seconds that a sample waits for siblings that are under way.
    """

    def __init__(self, size: int, patience: float):
        self.size = size
        self.patience = patience
        self._groups: OrderedDict[str, _Group] = OrderedDict()

    async def meet(
        self, group: str, sample: int, score: float, text: Changed, wait: bool = True
    ) -> list[tuple[float, Changed]] | None:
        """Scores and texts (or actions) of the group in the order of its samples, without those that ended before they
        had a score; None when some are still under way and patience is over, or `wait` is false.
        """
        here = self._group(group)
        here.samples[sample] = (score, text)
        self._look_for_the_end_of(here)
        if not here.complete.is_set():
            try:
                await asyncio.wait_for(here.complete.wait(), self.patience if wait else 0.0)
            except TimeoutError:
                return None
        return [here.samples[index] for index in sorted(here.samples)]

    async def leave(self, group: str, sample: int) -> None:
        """A sample has ended, with a score or without one: its siblings do not wait for it. When all have, the group is
        forgotten.
        """
        here = self._group(group)
        here.ended.add(sample)
        self._look_for_the_end_of(here)
        if len(here.ended) >= self.size:
            del self._groups[group]

    def _group(self, group: str) -> _Group:
        here = self._groups.setdefault(group, _Group())
        if len(self._groups) > KEPT_GROUPS:
            self._groups.popitem(last=False)
        return here

    def _look_for_the_end_of(self, here: _Group) -> None:
        if len(here.samples.keys() | here.ended) >= self.size:
            here.complete.set()


# verl's estimators that compare a score with those of its group and with nothing else. Others look at values of a
# critic, at a greedy sample, or whiten over the batch.
GROUP_RELATIVE = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "opo", "gpg")


def group_advantage(algorithm: Any) -> GroupAdvantage | None:
    """The rule of a run's estimator; None where scores of the group alone do not decide.

    algorithm: verl's group of that name. With a KL penalty in the reward samples of equal scores differ.
    """
    name = algorithm.adv_estimator
    if name not in GROUP_RELATIVE or algorithm.use_kl_in_reward:
        return None
    estimator = get_adv_estimator_fn(name)

    def has_advantage(scores: Sequence[float]) -> bool:
        if len(set(scores)) != 1:
            return len(scores) > 0
        # One stands for any score but 0: the mean of some equal numbers differs from them by a rounding.
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
    """What decides whether a run replays a group, by its scores; None where it replays all of them."""
    credit = config.credit
    if not credit.skip_equal_groups or credit.zero_advantage:
        return None
    return group_advantage(config.algorithm)


def wanted(config: Any) -> bool:
    """Whether samples of a run need to know of their siblings."""
    credit = config.get("credit")
    if credit is None or credit.kind == "off":
        return False
    return credit.method == "replace" or skips(config) is not None


class SharedBoard:
    """A process's way to the board, which starts when somebody first needs it."""

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

    async def meet(self, *sample: Any) -> list[tuple[float, Changed]] | None:
        """`GroupBoard.meet`."""
        together: list[tuple[float, Changed]] | None = await self.actor.meet.remote(*sample)
        return together

    def leave(self, group: str, sample: int) -> None:
        """`GroupBoard.leave`, without waiting until it is done."""
        self.actor.leave.remote(group, sample)
