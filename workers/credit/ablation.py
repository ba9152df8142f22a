"""Controls of counterfactual credit: the same replays and bound, without the information or with its opposite."""

import torch
from torch import Tensor

from workers.choices import ABLATIONS


def ablated(credits: Tensor, ablation: str, seed: int) -> Tensor:
    """Credits (B, K) of a control run; a step without credit (NaN) keeps none. ``none`` returns the same object.

    ``shuffled``: permute each response's credits at random over its steps that have one. The numbers are the same, and
    so are the entropy and, apart from steps of unequal length, the fallbacks. ``inverted``: flip the sign, so that
    harmful steps are raised. seed: of the permutation, so that every process with the same seed agrees.

    Shuffled credits keep their sum: comparison with siblings still separates better responses from worse ones, as
    partial reward does, but no longer their steps.

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
