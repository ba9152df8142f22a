"""Counterfactual credit in the policy update: step credits become token advantages with the trajectory's mean kept.

Shapes: B responses, T response tokens, K steps (of the response with the most).

The mapping (``shape_advantages``), for a response with advantage A whose step k has n_k tokens and credit c_k:

    cbar = sum_k n_k c_k / sum_k n_k        over the steps that have a credit and a token
    u_k  = (c_k - cbar) / (max_j |c_j - cbar| + tolerance)
    A_t  = A + strength * u_step(t)         and A_t = A for a token of no step, or of a step without credit

so the mean of A_t over the response's tokens is A (credit moves advantage between tokens, it adds none), no token
moves by more than ``strength``, and strength 0 is the plain algorithm bit for bit. Adding, not multiplying, keeps a
credit's sign on failures, where A is negative. A fixed-suffix credit is not an unbiased baseline (Mesnard et al.,
arXiv 2011.09464, require independence of the action): the gradient may be biased.

`ablated` makes the controls: the same replays and bound, without the information or with its opposite.
"""

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

Ablation = Literal["none", "shuffled", "inverted"]
ABLATIONS: tuple[Ablation, ...] = get_args(Ablation)


def ablated(credits: Tensor, ablation: str, seed: int) -> Tensor:
    """Credits (B, K) of a control run; a step without credit (NaN) keeps none. ``none`` returns the same object.

    ``shuffled``: permute each response's credits at random over its steps that have one. The numbers are the same, and
    so are the entropy and, apart from steps of unequal length, the fallbacks. ``inverted``: flip the sign, so that
    harmful steps are raised. seed: of the permutation, so that every process with the same seed agrees.

    Raises:
        ValueError: an unknown ablation, or credits that are not a matrix.
    """
    if credits.dim() != 2:
        raise ValueError(f"credits must be (B, K), got {tuple(credits.shape)}")
    if ablation not in ABLATIONS:
        raise ValueError(f"ablation must be one of {', '.join(ABLATIONS)}, got {ablation!r}")
    if ablation == "shuffled":
        return _shuffled(credits, torch.Generator().manual_seed(seed))
    return -credits if ablation == "inverted" else credits


def _shuffled(credits_B_K: Tensor, generator: torch.Generator) -> Tensor:
    missing_B_K = credits_B_K.isnan().cpu()
    # Both orders put a response's steps without credit last: source with the others shuffled, target as they are.
    drawn_B_K = torch.rand(credits_B_K.shape, generator=generator, dtype=torch.float64) + missing_B_K
    source_B_K = drawn_B_K.argsort(1).to(credits_B_K.device)
    target_B_K = missing_B_K.long().argsort(dim=1, stable=True).to(credits_B_K.device)
    return torch.empty_like(credits_B_K).scatter_(1, target_B_K, credits_B_K.gather(1, source_B_K))


Normalization = Literal["signed", "positive", "softmax", "rank", "group", "none"]
NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)

# Tokens per block on a CPU: a block's index stays in the cache, which halves the total time.
_CPU_BLOCK_TOKENS = 2**18


def shape_advantages(
    advantages: Tensor,
    credits: Tensor,
    step_ids: Tensor,
    response_mask: Tensor,
    *,
    strength: float,
    normalization: str = "signed",
    tolerance: float = 1e-6,
    groups: Tensor | None = None,
    min_valid: int = 2,
    zero_advantage: bool = False,
) -> tuple[Tensor, dict[str, float]]:
    """Token advantages shifted towards the steps that earned the reward, and the metrics of the batch.

    A response keeps its advantages bit for bit (a fallback, counted under the first cause that applies) if

    - ``no_steps``: none of its tokens belongs to a step;
    - ``too_few_valid``: fewer than ``min_valid`` of its steps have a credit to compare;
    - ``zero``: every credit is below ``tolerance``;
    - ``constant``: every credit is within ``tolerance`` of the mean, so none stands out;
    - ``zero_advantage``: all its advantages are 0 (a group without reward variance) and ``zero_advantage`` is off.

    Args:
        advantages: (B, T) floating, as the algorithm computed them; not changed.
        credits: (B, K) floating; NaN where a step has no credit (no valid intervention, verifier down, flaky).
        step_ids: (B, T) integer, the step of each token, below K; -1 for a token of no step (and for padding).
        response_mask: (B, T), non-zero for a trained token; the others are left as they are.
        strength: bound on the change of an advantage, >= 0.
        normalization: how credits are compared within a response. ``signed``: as they are; ``positive``: harmful
            steps count as useless; ``softmax``: exp(c), so a high credit stands out more than a low one; ``rank``:
            only their order (ties share a rank); ``group``: c minus the mean credit of the same step in the other
            responses of the group; ``none``: c - cbar not stretched to the bound, only shrunk where it exceeds 1.
        tolerance: credits closer than this count as equal; also the tolerance of the formula; > 0.
        groups: (B,) integer, the prompt that each response answers; required by ``group`` alone.
        min_valid: number of credits that a contrast needs, >= 2.
        zero_advantage: also shift the advantages of responses whose own advantage is 0.

    Returns:
        Advantages (B, T), a new tensor, and metrics of this batch under ``credit/``: ``mean``, ``abs_mean`` (over
        steps), ``entropy`` (of |c| over a response's steps, 1 = evenly spread), ``valid_share`` (of steps with
        tokens), ``token_share`` (of response tokens in a step with credit), ``advantage_shift`` (mean over response
        tokens of |change|), ``fallback_rate`` and ``fallback/<cause>`` (of responses with a token).

    Raises:
        ValueError: shapes that do not fit together, or a value out of range.
    """
    _check_shapes(advantages, credits, step_ids, response_mask, groups)
    _check_options(strength, normalization, tolerance, groups, min_valid)
    in_response = response_mask != 0
    tokens_B_K1 = _count_tokens(step_ids, in_response, credits.shape[1])
    tokens_B_K = tokens_B_K1[:, 1:]
    credits_B_K = credits.double().masked_fill(tokens_B_K == 0, torch.nan)

    if normalization == "group":
        assert groups is not None
        values_B_K = _against_siblings(credits_B_K, groups)
    else:
        values_B_K = _NORMALIZERS[normalization](credits_B_K)
    u_B_K, spread_B = _contrast(values_B_K, tokens_B_K, tolerance, stretch=normalization != "none")

    causes = {
        "no_steps": tokens_B_K.sum(1) == 0,
        "too_few_valid": (~values_B_K.isnan()).sum(1) < min_valid,
        "zero": _largest(credits_B_K) < tolerance,
        "constant": spread_B < tolerance,
        "zero_advantage": ~(_has_advantage(advantages) | zero_advantage),
    }
    fallback_B = torch.stack(list(causes.values())).any(0)
    shift_B_K = strength * u_B_K.masked_fill(fallback_B[:, None], 0.0)
    shaped = _add_to_tokens(advantages, shift_B_K, step_ids, in_response)
    return shaped, _statistics(credits_B_K, tokens_B_K1, shift_B_K, causes)


def _contrast(values_B_K: Tensor, tokens_B_K: Tensor, tolerance: float, stretch: bool) -> tuple[Tensor, Tensor]:
    """u (B, K) in [-1, 1] with token-weighted sum 0, 0 where the value is NaN; and max |c - cbar| (B,)."""
    valid_B_K = ~values_B_K.isnan()
    weights_B_K = tokens_B_K * valid_B_K
    weights_B_K = weights_B_K / weights_B_K.sum(1, keepdim=True).clamp(min=1)
    mean_B = (weights_B_K * values_B_K.nan_to_num(0.0)).sum(1, keepdim=True)
    deviation_B_K = (values_B_K - mean_B).masked_fill(~valid_B_K, 0.0)
    spread_B = _largest(deviation_B_K)
    scale_B = spread_B + tolerance if stretch else spread_B.clamp(min=1)
    return deviation_B_K / scale_B[:, None], spread_B


def _positive(credits_B_K: Tensor) -> Tensor:
    return credits_B_K.clamp(min=0)


def _softmax(credits_B_K: Tensor) -> Tensor:
    # Softmax weights without the denominator, which the division by the largest deviation cancels; shifted by the
    # largest credit to avoid overflow.
    if credits_B_K.shape[1] == 0:
        return credits_B_K
    return (credits_B_K - credits_B_K.nan_to_num(-math.inf).amax(1, keepdim=True)).exp()


def _rank(credits_B_K: Tensor) -> Tensor:
    """Number of lower credits plus half of the equal ones, so that ties share their mean rank."""
    filled_B_K = credits_B_K.nan_to_num(math.inf)
    ordered_B_K = filled_B_K.sort(dim=1).values
    lower_B_K = torch.searchsorted(ordered_B_K, filled_B_K)
    not_higher_B_K = torch.searchsorted(ordered_B_K, filled_B_K, right=True)
    return ((lower_B_K + not_higher_B_K) / 2.0).to(credits_B_K).masked_fill(credits_B_K.isnan(), torch.nan)


def _against_siblings(credits_B_K: Tensor, groups: Tensor) -> Tensor:
    """c minus the mean credit of this step in the group's other responses; NaN where no sibling has one."""
    group_B = groups.unique(return_inverse=True)[1]
    valid_B_K = (~credits_B_K.isnan()).to(credits_B_K)
    own_B_K = credits_B_K.nan_to_num(0.0)
    sums_B_K = torch.zeros_like(own_B_K).index_add_(0, group_B, own_B_K)[group_B]
    others_B_K = torch.zeros_like(own_B_K).index_add_(0, group_B, valid_B_K)[group_B] - valid_B_K
    return (credits_B_K - (sums_B_K - own_B_K) / others_B_K).masked_fill(others_B_K == 0, torch.nan)


_NORMALIZERS: dict[str, Callable[[Tensor], Tensor]] = {
    "signed": torch.clone,
    "positive": _positive,
    "softmax": _softmax,
    "rank": _rank,
    "none": torch.clone,
}


def _largest(values_B_N: Tensor) -> Tensor:
    """max |x| of each row (B,), NaN left out, 0 for a row without values."""
    # abs and amax are vectorised on a CPU; vector_norm with ord=inf takes ten times as long.
    return pad(values_B_N.nan_to_num(0.0), (0, 1)).abs().amax(1)


def _count_tokens(step_ids: Tensor, in_response: Tensor, steps: int) -> Tensor:
    """Response tokens (B, 1 + K) of no step (column 0) and of each step."""
    counts_B_K1 = torch.zeros(len(step_ids), 1 + steps, dtype=torch.int64, device=step_ids.device)
    for rows in _row_blocks(step_ids):
        column = step_ids[rows].long() + 1
        low, high = column.aminmax()
        if low < 0 or high > steps:
            found = f"{int(low) - 1} to {int(high) - 1}"
            raise ValueError(f"step_ids must lie in [-1, {steps - 1}] for credits of {steps} steps, got {found}")
        # Integers: exact, and on a CPU twice as fast as a float scatter.
        counts_B_K1[rows] = counts_B_K1[rows].scatter_add(1, column, in_response[rows].long())
    return counts_B_K1.double()


def _has_advantage(advantages: Tensor) -> Tensor:
    """Whether any advantage of a row differs from 0 (B,)."""
    return torch.cat([advantages[rows].abs().amax(1) != 0 for rows in _row_blocks(advantages)])


def _add_to_tokens(advantages: Tensor, shift_B_K: Tensor, step_ids: Tensor, in_response: Tensor) -> Tensor:
    """advantages (B, T) plus the shift of each response token's step."""
    # x + (-0.0) is x bit for bit for every x, while -0.0 + 0.0 is 0.0.
    table_B_K1 = pad(shift_B_K, (1, 0))
    table_B_K1 = table_B_K1.masked_fill(table_B_K1 == 0, -0.0).to(advantages.dtype)
    shaped = torch.empty_like(advantages)
    for rows in _row_blocks(step_ids):
        shift_T = table_B_K1[rows].gather(1, step_ids[rows].long() + 1)
        torch.add(advantages[rows], torch.where(in_response[rows], shift_T, -0.0), out=shaped[rows])
    return shaped


def _row_blocks(tokens_B_T: Tensor) -> list[slice]:
    """Slices of rows to process together: all rows on an accelerator, as many as the cache holds on a CPU."""
    rows, width = tokens_B_T.shape
    block = max(1, _CPU_BLOCK_TOKENS // width) if tokens_B_T.device.type == "cpu" else rows
    return [slice(start, min(start + block, rows)) for start in range(0, rows, block)]


def _statistics(
    credits_B_K: Tensor, tokens_B_K1: Tensor, shift_B_K: Tensor, causes: dict[str, Tensor]
) -> dict[str, float]:
    tokens_B_K, length_B = tokens_B_K1[:, 1:], tokens_B_K1.sum(1)
    valid_B_K = ~credits_B_K.isnan()
    credits_B_K = credits_B_K.nan_to_num(0.0)
    answered_B = length_B > 0
    numbers = {
        "mean": _ratio(credits_B_K.sum(), valid_B_K.sum()),
        "abs_mean": _ratio(credits_B_K.abs().sum(), valid_B_K.sum()),
        "entropy": _mean_entropy(credits_B_K.abs(), valid_B_K),
        "valid_share": _ratio(valid_B_K.sum(), (tokens_B_K > 0).sum()),
        "token_share": _ratio((tokens_B_K * valid_B_K).sum(), length_B.sum()),
        "advantage_shift": _ratio((tokens_B_K * shift_B_K.abs()).sum(), length_B.sum()),
    }
    open_B = answered_B
    for cause, applies_B in causes.items():
        numbers[f"fallback/{cause}"] = _ratio((open_B & applies_B).sum(), answered_B.sum())
        open_B = open_B & ~applies_B
    numbers["fallback_rate"] = _ratio((answered_B & ~open_B).sum(), answered_B.sum())
    # A single transfer from the device for all numbers.
    values = torch.stack(list(numbers.values())).tolist()
    return {f"credit/{name}": value for name, value in zip(numbers, values, strict=True)}


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole; 0 where the whole is 0."""
    return torch.where(whole > 0, part.double() / whole, 0.0)


def _mean_entropy(size_B_K: Tensor, valid_B_K: Tensor) -> Tensor:
    """Entropy of |c| / sum |c| over log of the number of credits, mean over responses where it is defined."""
    share_B_K = size_B_K / size_B_K.sum(1, keepdim=True)
    entropy_B = torch.special.entr(share_B_K).sum(1) / valid_B_K.sum(1).log()
    defined_B = (size_B_K.sum(1) > 0) & (valid_B_K.sum(1) > 1)
    return _ratio(entropy_B.masked_fill(~defined_B, 0.0).sum(), defined_B.sum())


def _check_shapes(
    advantages: Tensor, credits: Tensor, step_ids: Tensor, response_mask: Tensor, groups: Tensor | None
) -> None:
    shapes = {
        "advantages (B, T)": advantages,
        "credits (B, K)": credits,
        "step_ids (B, T)": step_ids,
        "response_mask (B, T)": response_mask,
    }
    fit = (
        all(tensor.dim() == 2 for tensor in shapes.values())
        and advantages.shape == step_ids.shape == response_mask.shape
        and len(credits) == len(advantages)
        and advantages.numel() > 0
    )
    if not fit:
        found = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in shapes.items())
        raise ValueError(f"shapes do not fit together: {found}")
    if groups is not None and groups.shape != (len(advantages),):
        raise ValueError(
            f"groups must be ({len(advantages)},) for advantages {tuple(advantages.shape)}, got {tuple(groups.shape)}"
        )
    if step_ids.is_floating_point() or step_ids.is_complex() or step_ids.dtype == torch.bool:
        raise ValueError(f"step_ids must be integer, got {step_ids.dtype}")
    if not (advantages.is_floating_point() and credits.is_floating_point()):
        raise ValueError(f"advantages and credits must be floating, got {advantages.dtype} and {credits.dtype}")
    if credits.isinf().any():
        raise ValueError("credits must be finite, or NaN for a step without credit; got an infinite one")


def _check_options(
    strength: float, normalization: str, tolerance: float, groups: Tensor | None, min_valid: int
) -> None:
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization must be one of {', '.join(NORMALIZATIONS)}, got {normalization!r}")
    if normalization == "group" and groups is None:
        raise ValueError("normalization 'group' compares siblings: pass groups, (B,) integers")
    if not (math.isfinite(strength) and strength >= 0):
        raise ValueError(f"strength must be finite and >= 0, got {strength}")
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise ValueError(f"tolerance must be finite and > 0, got {tolerance}")
    if min_valid < 2:
        raise ValueError(f"min_valid must be >= 2 (one credit is no contrast), got {min_valid}")
