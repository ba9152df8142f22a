"""Attention over packed sequences in plain torch, so that a CPU computes no padding.

verl's ``use_remove_padding`` packs the sequences of a micro-batch end to end into one row. That needs an attention
that stays within each sequence, which verl expects of flash-attention. This one calls torch's kernel once per sequence:
with up to some hundred tokens each, attention is a small part of a pass, and everything else runs over all tokens.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

NAME = "packed"
"""What ``attn_implementation`` calls it."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_ids: Tensor | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each of the sequences that one row holds, as transformers calls it.

    Computes in float32: on a CPU the backward pass of torch's kernel takes three times as long in bfloat16.

    Args:
        query: (1, heads, tokens, head size). key, value: (1, heads of keys, tokens, head size). position_ids:
            (1, tokens), 0 at the first token of each sequence.

    Returns:
        (1, tokens, heads, head size), and no attention weights.

    Raises ValueError for several rows, which would be padded, without positions, or for a sequence that is longer than
    the model's sliding window.
    """
    if query.shape[0] != 1 or attention_mask is not None or position_ids is None:
        raise ValueError(
            f"attn_implementation={NAME} takes sequences packed into one row with their positions, not a batch of "
            f"{query.shape[0]} rows: set actor_rollout_ref.model.use_remove_padding=true"
        )
    lengths = sequence_lengths(position_ids)
    if sliding_window is not None and max(lengths) > sliding_window:
        raise ValueError(
            f"attn_implementation={NAME} has no sliding window: a sequence of {max(lengths)} tokens exceeds the "
            f"model's {sliding_window}; shorten data.max_prompt_length or data.max_response_length"
        )
    parts = zip(*(states.float().split(lengths, dim=2) for states in (query, key, value)), strict=True)
    attended = [
        scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling, is_causal=True, enable_gqa=True)
        for q, k, v in parts
    ]
    return torch.cat(attended, dim=2).transpose(1, 2).to(query.dtype), None


def sequence_lengths(position_ids: Tensor) -> list[int]:
    """Lengths of packed sequences, from positions (1, tokens) that start at 0 in each."""
    starts = torch.nonzero(position_ids[0] == 0).flatten().tolist()
    ends = [*starts[1:], position_ids.shape[1]]
    return [end - start for start, end in zip(starts, ends, strict=True)]


def register_packed_attention() -> None:
    """Make ``attn_implementation=packed`` known to transformers, which then builds no mask for it. Idempotent."""
    AttentionInterface.register(NAME, packed_attention)
