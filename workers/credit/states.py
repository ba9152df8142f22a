"""GiGPO: the advantage of an agent's turn is that of its episode plus that of its action in its state.

Feng et al., "Group-in-Group Policy Optimization for LLM Agent Training" (arXiv 2505.10978), equations 6 to 8. Turns of
a group that were taken in the same (anchor) state form a separate group. With R_t the return from the state on,
discounted per turn (`methods: [returns]`):

    A_t = A + weight * A_S(t),        A_S(t) = (R_t - mean) / (std + 1e-6)

mean and (unbiased) std over the turns in the same state; a state that one turn alone was in has A_S = 0. A is the
advantage of the episode, which GRPO standardises in the same way over the group.

Shapes: B responses, T response tokens, K steps (turns).
"""

import torch
from torch import Tensor

from workers.credit.checks import check_numbers, check_shapes
from workers.credit.statistics import statistics
from workers.credit.tokens import add_to_tokens, count_tokens

_EPSILON = 1e-6


def state_advantages(
    advantages: Tensor,
    returns: Tensor,
    step_ids: Tensor,
    response_mask: Tensor,
    step_keys: Tensor,
    *,
    weight: float,
) -> tuple[Tensor, dict[str, float]]:
    """Advantages plus ``weight`` (omega) times those within states, and metrics as of `shape_advantages`.

    Weight 0 leaves the advantages bit for bit; a token of no turn keeps its own.

    Args:
        advantages: (B, T) floating, of the episodes; not changed.
        returns: (B, K) floating, from each turn on; NaN where unknown.
        step_ids: (B, T) integer, the turn of each token, below K; -1 for a token of no turn.
        response_mask: (B, T), non-zero for a trained token; the others are left as they are.
        step_keys: (B, K) integer, equal for turns of one group in the same state, -1 for an unknown one. A response may
            have a state several times.

    Raises:
        ValueError: shapes that do not fit together, or a weight out of range.
    """
    check_shapes(advantages, returns, step_ids, response_mask, step_keys=step_keys)
    check_numbers(weight, _EPSILON, 2)
    in_response = response_mask != 0
    tokens_B_K1 = count_tokens(step_ids, in_response, returns.shape[1])
    returns_B_K = returns.double().masked_fill(tokens_B_K1[:, 1:] == 0, torch.nan)
    step_B_K, shared_B_K = _within_states(returns_B_K, step_keys)
    shift_B_K = weight * step_B_K
    causes = {
        "no_steps": tokens_B_K1[:, 1:].sum(1) == 0,
        "too_few_valid": ~shared_B_K.any(1),
        "constant": (step_B_K == 0).all(1),
    }
    shaped = add_to_tokens(advantages, shift_B_K, step_ids, in_response)
    return shaped, statistics(returns_B_K, tokens_B_K1, shift_B_K, causes, {"shared_share": shared_B_K})


def _within_states(returns_B_K: Tensor, step_keys: Tensor) -> tuple[Tensor, Tensor]:
    """A_S of each turn (B, K), 0 without comparison; and whether another turn was in its state."""
    known_B_K = ~returns_B_K.isnan() & (step_keys >= 0)
    values_M = returns_B_K[known_B_K]
    states, state_M = step_keys[known_B_K].unique(return_inverse=True)
    zeros_S = values_M.new_zeros(len(states))
    count_S = zeros_S.index_add(0, state_M, torch.ones_like(values_M))
    deviation_M = values_M - (zeros_S.index_add(0, state_M, values_M) / count_S)[state_M]
    variance_S = zeros_S.index_add(0, state_M, deviation_M.square()) / (count_S - 1).clamp(min=1)
    scaled_M = deviation_M / (variance_S.sqrt() + _EPSILON)[state_M]
    scaled_B_K = torch.zeros_like(returns_B_K).masked_scatter(known_B_K, scaled_M)
    return scaled_B_K, torch.zeros_like(known_B_K).masked_scatter(known_B_K, (count_S > 1)[state_M])
