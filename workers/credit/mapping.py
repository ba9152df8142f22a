"""From compared credits to shifts of the advantage per step.

Shapes: B responses, K steps. For a response with mean advantage A whose group has the root mean square advantage a:

    add            A_t = A + strength * a * u
    scale          A_t = A * max(0, 1 + strength * sign(A) * u)
    redistribute   A_t = Abar + strength * a * u         for a step that was compared with its siblings, and
                   A_t = A + strength * a * u            for one that was compared within its response

(``strength`` below 1 takes ``redistribute`` that part of the way from A.) Abar is 0 if the whole group was compared.
Else it is the mean A of those that were, less the group's: a response that lacks the step, such as a program that does
not parse, keeps its A on its own tokens, and Abar balances it. So the advantages of a step's siblings add up to what
they have in GRPO, but for what is held at 0. A response without advantage takes ``strength * a * u`` in ``add`` and
``scale``; a group without advantage has the a of the batch's others. So shifts scale with A.

Sign-safe: where A and the credit c of a step have the same sign, A_t does not get the other sign; it stops at 0. For a
response with A = 0 a pass ratio of 1 counts as positive and one of 0 as negative: the lines that a right program needs
are not blamed for earning less than a sibling's. Nor does Abar reward a step of a failure that is worse than its
siblings': where A < 0 and u < 0, A_t stops at 0. With ``add`` within the response, a is 1 and nothing is held back, so
that the mean over the response stays A.
"""

import torch
from torch import Tensor

from workers.credit.contrast import CreditContrast


def group_scales(level_B: Tensor, answered_B: Tensor, group_B: Tensor) -> Tensor:
    """Root mean square advantage of each response's group (B,).

    A group without advantage has that of all responses of groups with advantage; 1 if the batch has none. That makes
    the result depend on the batch: compute it where the whole batch is, before it is split over ranks.

    level_B: mean advantage of each response. answered_B: whether it has tokens. group_B: numbers from 0.
    """
    zeros_G = level_B.new_zeros(int(group_B.max()) + 1)
    squares_G = zeros_G.index_add(0, group_B, level_B.square() * answered_B)
    count_G = zeros_G.index_add(0, group_B, answered_B.to(level_B))
    mean_G = squares_G / count_G.clamp(min=1)
    of_others = squares_G.sum() / count_G.masked_fill(squares_G == 0, 0.0).sum()
    of_others = torch.where(squares_G.sum() > 0, of_others, 1.0)
    return torch.where(mean_G > 0, mean_G, of_others).sqrt()[group_B]


def shared_level(level_B: Tensor, answered_B: Tensor, group_B: Tensor) -> Tensor:
    """Whether all responses of a group, two or more, have the same mean advantage (B,).

    In single precision the mean of equal scores can differ from them, and GRPO divides the difference by 1e-6: eight
    scores of 0.7 have advantages of 0.056. answered_B: whether a response has tokens; else it is not counted.
    """
    kept, answered = group_B[answered_B], level_B[answered_B]
    bounds_G = level_B.new_zeros(int(group_B.max()) + 1)
    high_G = bounds_G.scatter_reduce(0, kept, answered, "amax", include_self=False)
    low_G = bounds_G.scatter_reduce(0, kept, answered, "amin", include_self=False)
    several_G = bounds_G.index_add(0, kept, torch.ones_like(answered)) > 1
    return ((high_G == low_G) & several_G)[group_B]


def shifts(
    mapping: str, contrast: CreditContrast, level_B: Tensor, scale_B: Tensor, balance_B_K: Tensor, strength: float
) -> Tensor:
    """A_t - A of each step (B, K), before `sign_safe`. balance_B_K: Abar, see `balance`."""
    level_B_1 = level_B[:, None]
    shift_B_K = strength * scale_B[:, None] * contrast.u
    if mapping == "scale":
        scaled_B_K = strength * level_B_1.abs() * contrast.u
        bounded_B_K = torch.where(level_B_1 > 0, scaled_B_K.clamp(min=-level_B_1), scaled_B_K.clamp(max=-level_B_1))
        return torch.where(level_B_1 == 0, shift_B_K, bounded_B_K)
    if mapping == "redistribute":
        return shift_B_K + min(strength, 1.0) * (balance_B_K - level_B_1) * contrast.shared
    return shift_B_K


def balance(level_B: Tensor, answered_B: Tensor, group_B: Tensor, contrast: CreditContrast) -> Tensor:
    """Abar of each step that was compared with its siblings; 0 elsewhere (B, K).

    The group's mean is taken off also where it should be 0: single-precision advantages add up to 0 but for rounding,
    which Adam would scale up where there is no other signal. answered_B: whether a response has tokens; else it is not
    counted.
    """
    shared_B_K = contrast.shared
    zeros_G = level_B.new_zeros(int(group_B.max()) + 1)
    size_G = zeros_G.index_add(0, group_B, answered_B.to(level_B)).clamp(min=1)
    mean_G = zeros_G.index_add(0, group_B, level_B * answered_B) / size_G
    _, key_M, count_S = contrast.shared_key[shared_B_K].unique(return_inverse=True, return_counts=True)
    deviation_M = (level_B - mean_G[group_B])[shared_B_K.nonzero()[:, 0]]
    mean_S = level_B.new_zeros(len(count_S)).index_add_(0, key_M, deviation_M) / count_S
    return torch.zeros_like(contrast.u).masked_scatter(shared_B_K, mean_S[key_M])


def sign_safe(
    shift_B_K: Tensor, level_B: Tensor, u_B_K: Tensor, credits_B_K: Tensor, rewards: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Shifts that do not take A past 0 against the sign that A and the credit (or a negative A and u) share; and where
    they were held back.

    rewards: (B,) pass ratios, which decide where A is 0.
    """
    level_B_1 = level_B[:, None]
    sign_B = level_B.sign()
    if rewards is not None:
        of_rewards_B = (rewards >= 1).to(sign_B) - (rewards <= 0).to(sign_B)
        sign_B = torch.where(level_B == 0, of_rewards_B, sign_B)
    agree_B_K = sign_B[:, None] * credits_B_K.nan_to_num(0.0).sign() > 0
    agree_B_K |= (level_B_1 < 0) & (u_B_K < 0)
    held_B_K = agree_B_K & ((level_B_1 + shift_B_K) * sign_B[:, None] < 0)
    return torch.where(held_B_K, -level_B_1, shift_B_K), held_B_K
