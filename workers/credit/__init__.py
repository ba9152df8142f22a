"""Counterfactual credit in the policy update: step credits become token advantages.

Shapes: B responses, T response tokens, K steps (of the response with the most).

Three parts, one module each: credits are compared (`contrast` within a response, `sibling_contrast` with the same step
of the group's other responses), which gives u in [-1, 1] per step; u and the advantage A give A_t (`mapping`); and A_t
goes to the tokens of the step (`tokens`). For ``add`` and ``signed``, where step k has n_k tokens and credit c_k:

    cbar = sum_k n_k c_k / sum_k n_k        over the steps that have a credit and a token
    u_k  = (c_k - cbar) / (max_j |c_j - cbar| + tolerance)
    A_t  = A + strength * u_step(t)         and A_t = A for a token of no step, or of a step without credit

so the mean of A_t over the response's tokens is A (credit moves advantage between tokens, it adds none), no token
moves by more than ``strength``, and strength 0 is the plain algorithm bit for bit. Adding, not multiplying, keeps a
credit's sign on failures, where A is negative. A fixed-suffix credit is not an unbiased baseline (Mesnard et al.,
arXiv 2011.09464, require independence of the action): the gradient may be biased.

`ablated` makes the controls: the same replays and bound, without the information or with its opposite.
`value_advantages` (VinePPO, SPO) and `state_advantages` (GiGPO) are rivals from other papers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from workers.choices import MAPPINGS, NORMALIZATIONS
from workers.credit.ablation import ablated
from workers.credit.checks import check_choice, check_numbers, check_shapes
from workers.credit.contrast import CreditContrast, within_response
from workers.credit.mapping import balance, group_scales, shared_level, shifts, sign_safe
from workers.credit.sibling_contrast import against_siblings
from workers.credit.states import state_advantages
from workers.credit.statistics import statistics
from workers.credit.tokens import add_to_tokens, count_tokens, has_advantage, mean_advantages
from workers.credit.values import value_advantages

__all__ = [
    "ablated", "shape_advantages", "state_advantages", "value_advantages",
]  # fmt: skip


def shape_advantages(
    advantages: Tensor,
    credits: Tensor,
    step_ids: Tensor,
    response_mask: Tensor,
    *,
    strength: float,
    mapping: str = "add",
    normalization: str = "signed",
    tolerance: float = 1e-6,
    groups: Tensor | None = None,
    step_keys: Tensor | None = None,
    rewards: Tensor | None = None,
    min_valid: int = 2,
    zero_advantage: bool = False,
    relative: bool = False,
) -> tuple[Tensor, dict[str, float]]:
    """Token advantages shifted towards the steps that earned the reward, and the metrics of the batch.

    A response without informative credits keeps its advantages bit for bit (`_causes_of_fallback` lists when).

    Args:
        advantages: (B, T) floating, as the algorithm computed them; not changed.
        credits: (B, K) floating; NaN where a step has no credit (no valid intervention, verifier down, flaky).
        step_ids: (B, T) integer, the step of each token, below K; -1 for a token of no step (and for padding).
        response_mask: (B, T), non-zero for a trained token; the others are left as they are.
        strength: bound on the change of an advantage, >= 0; in units of the group's root mean square advantage, except
            with ``add`` within the response. ``redistribute`` in addition replaces A by what balances the siblings.
        mapping: how compared credits change A; see `workers.credit.mapping`.
        normalization: how credits are compared; see `workers.credit.contrast`; for ``siblings``, `sibling_contrast`.
        tolerance: credits closer than this count as equal; also the tolerance of the formula; > 0.
        groups: (B,) integer, the prompt that each response answers; without it, each is a group of one.
        step_keys: (B, K) integer, equal for the same step of the same group, -1 for a step without key; a response has
            each at most once. For ``siblings`` alone, which requires it.
        rewards: (B,) floating, pass ratios in [0, 1], NaN if unknown. ``siblings`` requires it; elsewhere it decides
            the sign of responses without advantage.
        min_valid: number of credits that a contrast needs, in the response or of a key, >= 2.
        zero_advantage: also shift the advantages of responses (``siblings``: of groups) whose own advantage is 0.
        relative: the algorithm compares scores within groups, so an advantage that all responses of a group share is
            the rounding of their mean, and counts as 0.

    Returns:
        Advantages (B, T), a new tensor, and metrics of this batch (`workers.credit.statistics`).

    Raises:
        ValueError: shapes that do not fit together, or a value out of range.
    """
    check_shapes(advantages, credits, step_ids, response_mask, groups=groups, step_keys=step_keys, rewards=rewards)
    check_choice("mapping", mapping, MAPPINGS)
    check_choice("normalization", normalization, NORMALIZATIONS)
    check_numbers(strength, tolerance, min_valid)
    batch = _CreditBatch.of(advantages, credits, step_ids, response_mask, groups, relative)
    contrast = _compared(batch, normalization, tolerance, min_valid, step_keys, rewards)
    open_B = _with_advantage(batch, normalization) | zero_advantage
    causes = _causes_of_fallback(batch, contrast, open_B, tolerance)
    fallback_B_1 = torch.stack(list(causes.values())).any(0)[:, None]
    plain = mapping == "add" and normalization != "siblings"
    shift_B_K, shares = _mapped(batch, contrast, fallback_B_1, strength, None if plain else mapping, rewards)
    shift_B_K = shift_B_K.masked_fill(fallback_B_1, 0.0)
    shaped = add_to_tokens(advantages, shift_B_K, step_ids, batch.in_response)
    return shaped, statistics(batch.credits_B_K, batch.tokens_B_K1, shift_B_K, causes, shares)


@dataclass(frozen=True)
class _CreditBatch:
    """The inputs that all parts share.

    in_response: (B, T) trained tokens. tokens_B_K1: tokens of no step, then of each step. credits_B_K: double, NaN
    without a credit or a token. level_B: mean advantage of each response. group_B: numbers of the groups, from 0;
    `grouped`: whether they were given. rounded_B: whether the response's advantage is only rounding.
    """

    advantages: Tensor
    in_response: Tensor
    tokens_B_K1: Tensor
    credits_B_K: Tensor
    level_B: Tensor
    group_B: Tensor
    grouped: bool
    rounded_B: Tensor

    @property
    def tokens_B_K(self) -> Tensor:
        return self.tokens_B_K1[:, 1:]

    @property
    def answered_B(self) -> Tensor:
        """Whether a response has tokens."""
        return self.tokens_B_K1.sum(1) > 0

    @staticmethod
    def of(
        advantages: Tensor, credits: Tensor, step_ids: Tensor, response_mask: Tensor, groups: Tensor | None,
        relative: bool,
    ) -> "_CreditBatch":  # fmt: skip
        """From what the caller passes."""
        in_response = response_mask != 0
        tokens_B_K1 = count_tokens(step_ids, in_response, credits.shape[1])
        credits_B_K = credits.double().masked_fill(tokens_B_K1[:, 1:] == 0, torch.nan)
        group_B = torch.arange(len(advantages), device=advantages.device)
        if groups is not None:
            group_B = groups.unique(return_inverse=True)[1]
        length_B = tokens_B_K1.sum(1)
        level_B = mean_advantages(advantages, in_response, length_B)
        rounded_B = shared_level(level_B, length_B > 0, group_B) & relative
        level_B = level_B.masked_fill(rounded_B, 0.0)
        return _CreditBatch(
            advantages, in_response, tokens_B_K1, credits_B_K, level_B, group_B, groups is not None, rounded_B
        )


def _compared(
    batch: _CreditBatch,
    normalization: str,
    tolerance: float,
    min_valid: int,
    step_keys: Tensor | None,
    rewards: Tensor | None,
) -> CreditContrast:
    """Credits compared within the response, or with siblings."""
    if normalization != "siblings":
        return within_response(batch.credits_B_K, batch.tokens_B_K, normalization, tolerance, min_valid)
    if not batch.grouped or step_keys is None or rewards is None:
        raise ValueError("normalization 'siblings' compares siblings: pass groups, step_keys and rewards")
    return against_siblings(
        batch.credits_B_K, batch.tokens_B_K, step_keys, batch.group_B, rewards, tolerance, min_valid
    )


def _with_advantage(batch: _CreditBatch, normalization: str) -> Tensor:
    """(B,) whether a response has an advantage other than 0; with ``siblings``, whether one of its group has."""
    open_B = has_advantage(batch.advantages, batch.in_response) & ~batch.rounded_B
    if normalization != "siblings":
        return open_B
    return torch.zeros_like(batch.group_B).index_add(0, batch.group_B, open_B.long())[batch.group_B] > 0


def _causes_of_fallback(
    batch: _CreditBatch, contrast: CreditContrast, open_B: Tensor, tolerance: float
) -> dict[str, Tensor]:
    """(B,) each: why a response keeps its advantages; it is counted under the first cause that applies.

    - ``no_steps``: none of its tokens belongs to a step;
    - ``too_few_valid``: too few of its steps have a credit to compare (``siblings``: none can be compared);
    - ``zero``: every credit (``siblings``: of its group) is below ``tolerance``;
    - ``constant``: every credit (``siblings``: of its group) is within ``tolerance`` of the mean: none stands out;
    - ``zero_advantage``: all its advantages (``siblings``: of its group) are 0 and ``zero_advantage`` is off.
    """
    return {
        "no_steps": batch.tokens_B_K.sum(1) == 0,
        "too_few_valid": ~contrast.comparable,
        "zero": contrast.silent,
        "constant": contrast.spread < tolerance,
        "zero_advantage": ~open_B,
    }


def _mapped(
    batch: _CreditBatch, contrast: CreditContrast, fallback_B_1: Tensor, strength: float, mapping: str | None,
    rewards: Tensor | None,
) -> tuple[Tensor, dict[str, Tensor]]:  # fmt: skip
    """Shifts (B, K) of the advantages, and masks (B, K) whose shares are reported.

    mapping: None adds within the response, where the bound is `strength` itself and no sign is held.
    """
    if mapping is None:
        return strength * contrast.u, {}
    level_B, answered_B = batch.level_B, batch.answered_B
    scale_B = group_scales(level_B, answered_B, batch.group_B)
    balance_B_K = balance(level_B, answered_B, batch.group_B, contrast)
    shift_B_K = shifts(mapping, contrast, level_B, scale_B, balance_B_K, strength)
    shift_B_K, held_B_K = sign_safe(shift_B_K, level_B, contrast.u, batch.credits_B_K, rewards)
    return shift_B_K, {"shared_share": contrast.shared, "held_share": held_B_K & ~fallback_B_1}
