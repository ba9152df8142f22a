"""A step's credit compared with the same step of the group's other responses.

Shapes: B responses, K steps, M credits with a key, S different keys, G groups.

For a step with credit c whose key n responses of the group have, n >= ``min_valid``:

    u = (c - mean) / max(std + delta, max |c - mean|)

with mean, std and max over the n credits. The mean includes c: c - mean is (n - 1) / n of the difference from the
others, the linear shrinkage for the standard error std / sqrt(n) of the mean (as of James and Stein, 1961). So u adds
up to 0 over the siblings, and two siblings count half.

delta makes magnitude count. It is the spread that each step has if the K steps of a response share the spread of the
group equally: delta = spread / sqrt(K) + tolerance, where spread is the standard deviation of the group's rewards, or
the root of the summed variances of its keys if that is larger. A difference that is small beside delta moves little. A
group whose rewards are all equal has the root mean square spread of the batch's other groups; without such groups its
credits alone define what is small.

A step that fewer responses have is compared with its own response: mean and std over the response's tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from workers.credit.contrast import CreditContrast, from_mean, largest


@dataclass(frozen=True)
class _Keyed:
    """Credits with a key: values (M,), the number of their key (M,) below `keys`, their group (M,) below `groups`."""

    credits: Tensor
    key: Tensor
    group: Tensor
    keys: int
    groups: int


def against_siblings(
    credits_B_K: Tensor,
    tokens_B_K: Tensor,
    step_keys: Tensor,
    group_B: Tensor,
    rewards: Tensor,
    tolerance: float,
    min_valid: int,
) -> CreditContrast:
    """The contrast of each step with its siblings.

    Groups with equal rewards depend on the batch: compute it before the batch is split over ranks.

    credits_B_K: double, NaN without credit. step_keys: (B, K), equal for the same step of the same group, -1: none.
    group_B: numbers of the groups, from 0. rewards: (B,) pass ratios, NaN if unknown.
    """
    valid_B_K = ~credits_B_K.isnan()
    with_key_B_K = valid_B_K & (step_keys >= 0)
    names, key_M = step_keys[with_key_B_K].unique(return_inverse=True)
    rows_M = with_key_B_K.nonzero()[:, 0]
    groups = int(group_B.max()) + 1
    keyed = _Keyed(credits_B_K[with_key_B_K], key_M, group_B[rows_M], len(names), groups)

    deviation_M, variance_S, enough_S = _key_moments(keyed, min_valid, tolerance)
    shared_B_K = torch.zeros_like(valid_B_K).masked_scatter(with_key_B_K, enough_S[key_M])
    delta_G = _delta(keyed, variance_S, valid_B_K, group_B, rewards, tolerance) + tolerance

    group_S = group_B.new_zeros(keyed.keys).scatter_(0, key_M, keyed.group)
    bound_S = variance_S.new_zeros(keyed.keys).scatter_reduce_(0, key_M, deviation_M.abs(), "amax")
    scale_S = torch.maximum(variance_S.sqrt() + delta_G[group_S], bound_S)
    u_B_K = torch.zeros_like(credits_B_K).masked_scatter(with_key_B_K, deviation_M / scale_S[key_M])
    deviation_B_K = torch.zeros_like(credits_B_K).masked_scatter(with_key_B_K, deviation_M)

    alone_B_K = valid_B_K & ~shared_B_K & (valid_B_K.sum(1) >= min_valid)[:, None]
    own_B_K = from_mean(credits_B_K, tokens_B_K)
    own_scale_B = torch.maximum(_spread(own_B_K, tokens_B_K * valid_B_K) + delta_G[group_B], largest(own_B_K))
    u_B_K = torch.where(alone_B_K, own_B_K / own_scale_B[:, None], u_B_K)
    deviation_B_K = torch.where(alone_B_K, own_B_K, deviation_B_K)
    most_G, spread_G = (
        delta_G.new_zeros(groups).scatter_reduce_(0, group_B, largest(values_B_K), "amax")
        for values_B_K in (credits_B_K, deviation_B_K)
    )
    return CreditContrast(
        u=u_B_K,
        # Of the group: were one response to keep its advantage, its siblings' steps would take what none balances.
        spread=spread_G[group_B],
        comparable=(shared_B_K | alone_B_K).any(1),
        silent=most_G[group_B] < tolerance,
        shared_key=torch.where(shared_B_K, step_keys, -1),
    )


def _key_moments(keyed: _Keyed, min_valid: int, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    """c - mean of its key (M,), the variance of each key (S,), and whether it has enough credits (S,).

    Deviation and variance are 0 for a key with too few credits, or whose credits are equal within tolerance.
    """
    count_S = keyed.key.bincount(minlength=keyed.keys)
    enough_S = count_S >= min_valid
    mean_S = _sums(keyed.credits, keyed.key, keyed.keys) / count_S
    deviation_M = keyed.credits - mean_S[keyed.key]
    most_S = mean_S.new_zeros(keyed.keys).scatter_reduce_(0, keyed.key, deviation_M.abs(), "amax")
    deviation_M = deviation_M.masked_fill(~(enough_S & (most_S >= tolerance))[keyed.key], 0.0)
    variance_S = _sums(deviation_M.square(), keyed.key, keyed.keys) / (count_S - 1).clamp(min=1)
    return deviation_M, variance_S, enough_S


def _delta(
    keyed: _Keyed, variance_S: Tensor, valid_B_K: Tensor, group_B: Tensor, rewards: Tensor, tolerance: float
) -> Tensor:
    """The spread of each group (G,) divided by the root of its mean number of credits per response."""
    known_B = rewards.isfinite()
    reward_B = torch.where(known_B, rewards, 0.0).double()
    count_G = _sums(known_B.double(), group_B, keyed.groups)
    mean_G = _sums(reward_B, group_B, keyed.groups) / count_G.clamp(min=1)
    squares_B = (reward_B - mean_G[group_B]).square() * known_B
    of_rewards_G = _sums(squares_B, group_B, keyed.groups) / (count_G - 1).clamp(min=1)
    differ_G = of_rewards_G > tolerance**2
    of_others = (of_rewards_G * differ_G).sum() / differ_G.sum().clamp(min=1)
    of_rewards_G = torch.where(differ_G, of_rewards_G, of_others)

    group_S = group_B.new_zeros(keyed.keys).scatter_(0, keyed.key, keyed.group)
    of_credits_G = _sums(variance_S, group_S, keyed.groups)
    steps_B = valid_B_K.sum(1).double()
    steps_G = _sums(steps_B, group_B, keyed.groups) / _sums((steps_B > 0).double(), group_B, keyed.groups).clamp(min=1)
    return (torch.maximum(of_rewards_G, of_credits_G) / steps_G.clamp(min=1)).sqrt()


def _spread(deviation_B_K: Tensor, weights_B_K: Tensor) -> Tensor:
    """Root of the weighted mean square (B,)."""
    total_B = weights_B_K.sum(1).clamp(min=1)
    return ((weights_B_K * deviation_B_K.square()).sum(1) / total_B).sqrt()


def _sums(values: Tensor, numbers: Tensor, count: int) -> Tensor:
    """Sum of the values with each number below `count`."""
    return values.new_zeros(count).index_add_(0, numbers, values)
