"""Metrics of a batch's credits and of what they changed.

Shapes: B responses, K steps.
"""

import torch
from torch import Tensor


def statistics(
    credits_B_K: Tensor, tokens_B_K1: Tensor, shift_B_K: Tensor, causes: dict[str, Tensor], shares: dict[str, Tensor]
) -> dict[str, float]:
    """Metrics under ``credit/``.

    ``mean``, ``abs_mean`` (over steps), ``entropy`` (of |c| over a response's steps, 1 = evenly spread),
    ``valid_share`` (of steps with tokens), ``token_share`` (of response tokens in a step with credit),
    ``advantage_shift`` (mean over response tokens of |change|), ``fallback_rate`` and ``fallback/<cause>`` (of
    responses with a token). Except with ``add`` within the response also ``shared_share`` (steps compared with
    siblings) and ``held_share`` (steps whose shift stopped at 0, see `workers.credit.mapping`), of those with credit.

    causes: (B,) of fallback, in order. shares: (B, K) masks, of which the share of the steps with credit is reported.
    """
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
    numbers |= {name: _ratio((mask & valid_B_K).sum(), valid_B_K.sum()) for name, mask in shares.items()}
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
