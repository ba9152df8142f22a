"""Advantages that are differences of values alone: VinePPO and segment policy optimisation, without A.

Shapes: B responses, T response tokens, K steps.

A step's credit is the change of value over it, V(prefix with the step) - V(prefix before it), with V the mean reward of
the policy's continuations and, at the end, the reward itself (`methods: [resample]`):

- VinePPO (Kazemnejad et al., arXiv 2410.01679, section 4): the steps of the reasoning, discount 1.
- SPO (Guo et al., arXiv 2505.23564, SPO-chain): segments of tokens (`unit: token`). Its probability mask keeps the
  advantage of tokens at which the policy could have gone elsewhere: those of a probability up to ``max_probability``.

Then, as in the code of both (``masked_whiten``), the advantages are whitened over the batch, in SPO without the masked
tokens:

    A_t = (c_step(t) - mean) / sqrt(variance + 1e-8)        mean and (unbiased) variance over the tokens with a value

A token between steps belongs to the step before it, as the end of the answer does.
"""

import torch
from torch import Tensor

from workers.credit.checks import check_shapes
from workers.credit.statistics import statistics
from workers.credit.tokens import count_tokens


def value_advantages(
    advantages: Tensor,
    credits: Tensor,
    step_ids: Tensor,
    response_mask: Tensor,
    *,
    probabilities: Tensor | None = None,
    max_probability: float = 1.0,
) -> tuple[Tensor, dict[str, float]]:
    """Whitened credits in place of the advantages, and metrics as of `workers.credit.shape_advantages`.

    A token without value keeps its advantage bit for bit: one before the first step, of a step without credit, or of a
    response without steps.

    Args:
        advantages: (B, T) floating, as the algorithm computed them; not changed.
        credits: (B, K) floating; NaN where a step has no credit.
        step_ids: (B, T) integer, the step of each token, below K, in order; -1 for a token of no step.
        response_mask: (B, T), non-zero for a trained token; the others are left as they are.
        probabilities: (B, T) of each token under the policy that sampled it; needed for ``max_probability`` below 1.
        max_probability: tokens with a higher probability get advantage 0 and have no part in mean and variance.

    Raises:
        ValueError: shapes that do not fit together, or no probabilities where they are needed.
    """
    check_shapes(advantages, credits, step_ids, response_mask)
    if max_probability < 1.0 and (probabilities is None or probabilities.shape != advantages.shape):
        raise ValueError(f"max_probability={max_probability} needs the probabilities {tuple(advantages.shape)}")
    in_response = response_mask != 0
    owner_B_T = step_ids.cummax(dim=1).values
    tokens_B_K1 = count_tokens(owner_B_T, in_response, credits.shape[1])

    # Column 0: no value, for tokens before the first step.
    table_B_K1 = torch.nn.functional.pad(credits.double(), (1, 0), value=torch.nan)
    value_B_T = table_B_K1.gather(1, owner_B_T.long() + 1)
    valued_B_T = in_response & ~value_B_T.isnan()
    kept_B_T = valued_B_T if probabilities is None else valued_B_T & (probabilities <= max_probability)
    whitened_B_T = _whitened(value_B_T, kept_B_T)
    result = torch.where(valued_B_T, whitened_B_T.to(advantages.dtype), advantages)

    credits_B_K = credits.double().masked_fill(tokens_B_K1[:, 1:] == 0, torch.nan)
    causes = {"no_steps": tokens_B_K1[:, 1:].sum(1) == 0, "too_few_valid": ~valued_B_T.any(1)}
    stats = statistics(credits_B_K, tokens_B_K1, torch.zeros_like(credits_B_K), causes, {})
    change_B_T = torch.where(valued_B_T, result - advantages, 0.0).abs()
    stats["credit/advantage_shift"] = float(change_B_T.sum() / in_response.sum().clamp(min=1))
    return result, stats


def _whitened(values_B_T: Tensor, chosen_B_T: Tensor) -> Tensor:
    """Chosen values with mean 0 and unbiased variance 1 over all of them; the others are 0."""
    count = chosen_B_T.sum()
    filled_B_T = torch.where(chosen_B_T, values_B_T, 0.0)
    centred_B_T = torch.where(chosen_B_T, filled_B_T - filled_B_T.sum() / count.clamp(min=1), 0.0)
    variance = centred_B_T.square().sum() / (count - 1).clamp(min=1)
    return centred_B_T * torch.rsqrt(variance + 1e-8)
