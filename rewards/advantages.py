"""Whether samples of a group have any advantage, by their scores: the question that decides whether replays pay."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from rewards.groups import GroupAdvantage

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
