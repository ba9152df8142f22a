"""Controls for counterfactual credit: the same replays and bound, without the information or with its opposite.

Shapes as in `workers.credit`: B responses, K steps (of the response that has most).
"""

import torch
from torch import Tensor

ABLATIONS = ("none", "shuffled", "inverted")


def ablated(credits: Tensor, ablation: str, seed: int) -> Tensor:
    """Credits (B, K) of the control, in which a step without credit (NaN) keeps none; with ``none`` the very same.

    ``shuffled``: those of each response in a random order over its steps that have one: the same numbers, so the same
    entropy and as many fallbacks but for steps of unequal length. ``inverted``: with the opposite sign: harmful steps
    are raised. seed: of the order; the same seed gives the same order, so every process that knows it agrees.

    Raises:
        ValueError: another ablation, or credits that are no matrix.
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
    # Both orders have a response's steps without credit last: the first the others at random, the second as they are.
    drawn_B_K = torch.rand(credits_B_K.shape, generator=generator, dtype=torch.float64) + missing_B_K
    source_B_K = drawn_B_K.argsort(1).to(credits_B_K.device)
    target_B_K = missing_B_K.long().argsort(dim=1, stable=True).to(credits_B_K.device)
    return torch.empty_like(credits_B_K).scatter_(1, target_B_K, credits_B_K.gather(1, source_B_K))
