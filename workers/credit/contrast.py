"""How a step's credit is compared: with the other steps of its response (here), or with its siblings (`siblings`).

Shapes: B responses, K steps. Normalizations within a response:

- ``signed``: credits as they are;
- ``positive``: harmful steps count as useless;
- ``softmax``: exp(c), so a high credit stands out more than a low one;
- ``rank``: only their order (ties share a rank);
- ``none``: c - cbar not stretched to the bound, only shrunk where it exceeds 1.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class CreditContrast:
    """Credits after comparison.

    u: (B, K) in [-1, 1]; 0 for a step without comparison.
    spread: (B,) largest difference behind u, in units of the credit or of its transform.
    comparable: (B,) whether the response has enough credits to compare.
    silent: (B,) whether all credits that a response is compared by are 0 within tolerance.
    shared_key: (B, K) the key of a step that was compared with its siblings, and so may lose its advantage; else -1.
    """

    u: Tensor
    spread: Tensor
    comparable: Tensor
    silent: Tensor
    shared_key: Tensor

    @property
    def shared(self) -> Tensor:
        """Whether a step was compared with its siblings (B, K)."""
        return self.shared_key >= 0


def within_response(
    credits_B_K: Tensor, tokens_B_K: Tensor, normalization: str, tolerance: float, min_valid: int
) -> CreditContrast:
    """Credits, transformed by `normalization`, minus their mean over the response's tokens.

    u is stretched so that the largest step has |u| = 1, except with ``none``, which only shrinks it to that.
    """
    values_B_K = _TRANSFORMS[normalization](credits_B_K)
    valid_B_K = ~values_B_K.isnan()
    deviation_B_K = from_mean(values_B_K, tokens_B_K)
    spread_B = largest(deviation_B_K)
    scale_B = spread_B + tolerance if normalization != "none" else spread_B.clamp(min=1)
    return CreditContrast(
        u=deviation_B_K / scale_B[:, None],
        spread=spread_B,
        comparable=valid_B_K.sum(1) >= min_valid,
        silent=largest(credits_B_K) < tolerance,
        shared_key=torch.full_like(credits_B_K, -1, dtype=torch.long),
    )


def from_mean(values_B_K: Tensor, tokens_B_K: Tensor) -> Tensor:
    """Values minus their mean over the response's tokens; 0 where the value is NaN."""
    valid_B_K = ~values_B_K.isnan()
    weights_B_K = tokens_B_K * valid_B_K
    weights_B_K = weights_B_K / weights_B_K.sum(1, keepdim=True).clamp(min=1)
    mean_B = (weights_B_K * values_B_K.nan_to_num(0.0)).sum(1, keepdim=True)
    return (values_B_K - mean_B).masked_fill(~valid_B_K, 0.0)


def largest(values_B_N: Tensor) -> Tensor:
    """max |x| of each row (B,), NaN left out, 0 for a row without values."""
    # abs and amax are vectorised on a CPU; vector_norm with ord=inf takes ten times as long.
    return pad(values_B_N.nan_to_num(0.0), (0, 1)).abs().amax(1)


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


_TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "signed": torch.clone,
    "positive": _positive,
    "softmax": _softmax,
    "rank": _rank,
    "none": torch.clone,
}
