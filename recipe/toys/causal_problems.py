"""Planted causal problems: solutions of a few steps whose true credits are known.

A step of a solution is one action. Row c of the policy's table calls action c (modulo the number of actions) right and
the next one harmful; a deleted step is neither. Rewards are multilinear in what the steps are, and a tabular policy
draws them independently, so the same formula at probabilities is the expected reward.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEPS = 8
# Of the additive problem; they add up to 1.
WEIGHTS = np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05])
# Share of the reward that a harmful step costs.
HARM = 0.5


@dataclass(frozen=True)
class CausalProblem:
    """What earns a reward.

    reward: from right and harmful (..., STEPS), 0 or 1 (or probabilities), to the reward (...) in [0, 1].
    actions: how many the policy chooses from at each step.
    copies: each step reads a random row of the table, shown by the prompt, in place of its own row.
    """

    name: str
    reward: Callable[[Array, Array], Array]
    actions: int = 4
    copies: bool = False


def _both(right: Array, harmful: Array) -> Array:
    return right[..., 0] * right[..., 1]


def _either(right: Array, harmful: Array) -> Array:
    return 1 - (1 - right[..., 0]) * (1 - right[..., 1])


def _weighted(right: Array, harmful: Array) -> Array:
    return right @ WEIGHTS


def _spoiled(right: Array, harmful: Array) -> Array:
    return right[..., :3].mean(-1) * (1 - HARM * harmful[..., 3])


def _copied(right: Array, harmful: Array) -> Array:
    return right.mean(-1)


PROBLEMS = (
    CausalProblem("and", _both),
    CausalProblem("or", _either),
    CausalProblem("additive", _weighted),
    CausalProblem("harmful step", _spoiled),
    CausalProblem("copy bandit", _copied, actions=STEPS, copies=True),
)


def delete_credits(problem: CausalProblem, right: Array, harmful: Array) -> Array:
    """c_t = R(solution) - R(solution without step t), by replaying each deletion: (..., STEPS)."""
    reward = problem.reward(right, harmful)
    credits = np.empty(right.shape)
    for step in range(STEPS):
        kept = np.arange(STEPS) != step
        credits[..., step] = reward - problem.reward(right * kept, harmful * kept)
    return credits
