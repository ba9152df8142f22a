"""Step ids of tokens: tokens per step, the mean advantage of a response, and shifts of steps added to their tokens."""

import torch
from torch import Tensor
from torch.nn.functional import pad

# Tokens per block on a CPU: a block's index stays in the cache, which halves the total time.
_CPU_BLOCK_TOKENS = 2**18


def count_tokens(step_ids: Tensor, in_response: Tensor, steps: int) -> Tensor:
    """Response tokens (B, 1 + K) of no step (column 0) and of each step, in double precision.

    Raises:
        ValueError: a step id outside [-1, steps - 1].
    """
    counts_B_K1 = torch.zeros(len(step_ids), 1 + steps, dtype=torch.int64, device=step_ids.device)
    for rows in _row_blocks(step_ids):
        column = step_ids[rows].long() + 1
        low, high = column.aminmax()
        if low < 0 or high > steps:
            given = f"{int(low) - 1} to {int(high) - 1}"
            raise ValueError(f"step_ids must lie in [-1, {steps - 1}] for credits of {steps} steps, got {given}")
        # Integers: exact, and on a CPU twice as fast as a float scatter.
        counts_B_K1[rows] = counts_B_K1[rows].scatter_add(1, column, in_response[rows].long())
    return counts_B_K1.double()


def has_advantage(advantages: Tensor, in_response: Tensor) -> Tensor:
    """Whether the advantage of any token of a response differs from 0 (B,)."""
    blocks = _row_blocks(advantages)
    return torch.cat([torch.where(in_response[rows], advantages[rows], 0.0).abs().amax(1) != 0 for rows in blocks])


def mean_advantages(advantages: Tensor, in_response: Tensor, length_B: Tensor) -> Tensor:
    """Mean advantage of each response's tokens (B,), in double precision; 0 for a row without tokens.

    Exact where all tokens of a response have the same advantage, as in GRPO. length_B: number of the tokens.
    """
    blocks = _row_blocks(advantages)
    sums = [torch.where(in_response[rows], advantages[rows], 0.0).double().sum(1) for rows in blocks]
    return torch.cat(sums) / length_B.clamp(min=1)


def add_to_tokens(advantages: Tensor, shift_B_K: Tensor, step_ids: Tensor, in_response: Tensor) -> Tensor:
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
