"""Attention over packed sequences in plain torch, so that no padding is computed without the package flash-attn.

verl's ``use_remove_padding`` packs the sequences of a micro-batch end to end into one row. That needs an attention
that stays within each sequence, which verl expects of flash-attn. On a GPU in 16 bits this one calls the flash
attention that is built into torch, otherwise torch's kernel once per sequence: on a CPU, with up to some hundred tokens
each, attention is a small part of a pass, and everything else runs over all tokens, or once over those that several
sequences share (workers.cpu.prefixes).
"""

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from verl.utils.ulysses import (
    gather_heads_scatter_seq,
    gather_seq_scatter_heads,
    get_ulysses_sequence_parallel_group,
    get_ulysses_sequence_parallel_world_size,
)

from workers.cpu.prefixes import Branches, SharedPrefixes, separate_sequences

NAME = "packed"
"""What ``attn_implementation`` calls it."""
HALF_PRECISION = (torch.bfloat16, torch.float16)


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
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    prefixes: SharedPrefixes | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each of the sequences that one row holds, as transformers calls it.

    Computes in float32 but for torch's flash attention: on a CPU the backward pass of torch's kernel takes three times
    as long in bfloat16.

    Args:
        query: (1, heads, tokens, head size). key, value: (1, heads of keys, tokens, head size). position_ids:
            (1, tokens), 0 at the first token of each sequence. prefixes: which tokens are shared by several sequences;
            None: no token is.

    Returns:
        (1, tokens, heads, head size), and no attention weights.

    Raises ValueError for several rows, which would be padded, without positions, or for a sequence that is longer than
    the model's sliding window; for scores with a soft cap or a sink, which it does not compute.
    """
    _require_plain_scores(softcap, s_aux)
    if query.shape[0] != 1 or attention_mask is not None or position_ids is None:
        raise ValueError(
            f"attn_implementation={NAME} takes sequences packed into one row with their positions, not a batch of "
            f"{query.shape[0]} rows: set actor_rollout_ref.model.use_remove_padding=true"
        )
    ranks = get_ulysses_sequence_parallel_world_size()
    if ranks > 1:
        query, key, value, position_ids = _whole_sequences(query, key, value, position_ids, ranks)
    attended = _attended(query, key, value, position_ids[0], prefixes, dropout, scaling, sliding_window)
    return (gather_heads_scatter_seq(attended, seq_dim=1, head_dim=2) if ranks > 1 else attended), None


def _whole_sequences(
    query: Tensor, key: Tensor, value: Tensor, position_ids: Tensor, ranks: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All tokens of a share of the heads, from a share of the tokens of all heads (Ulysses, arXiv 2309.14509).

    Heads of keys that are fewer than the ranks are repeated, so that each rank has one.
    """
    repeats = max(ranks // key.shape[1], 1)
    states = (query, *(one.repeat_interleave(repeats, dim=1) for one in (key, value)))
    query, key, value = (gather_seq_scatter_heads(one.contiguous(), seq_dim=2, head_dim=1) for one in states)
    parts = [torch.empty_like(position_ids) for _ in range(ranks)]
    torch.distributed.all_gather(parts, position_ids.contiguous(), group=get_ulysses_sequence_parallel_group())
    return query, key, value, torch.cat(parts, dim=1)


def _attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    position_ids: Tensor,
    prefixes: SharedPrefixes | None,
    dropout: float,
    scaling: float | None,
    sliding_window: int | None,
) -> Tensor:
    """(1, tokens, heads, head size) of all tokens. position_ids: (tokens)."""
    branches = prefixes.branches if prefixes else separate_sequences(position_ids.cpu())
    longest = max(branches.lengths)
    if sliding_window is not None and longest > sliding_window:
        raise ValueError(
            f"attn_implementation={NAME} has no sliding window: a sequence of {longest} tokens exceeds the "
            f"model's {sliding_window}; shorten data.max_prompt_length or data.max_response_length"
        )
    if query.is_cuda and query.dtype in HALF_PRECISION and not prefixes and not dropout:
        bounds = torch.tensor([0, *accumulate(branches.lengths)], dtype=torch.int32, device=query.device)
        return flash_attention(query[0], key[0], value[0], bounds, longest, scaling)
    queries = query.float().split(branches.own, dim=2)
    keys, values = (_of_sequences(states.float(), branches) for states in (key, value))
    attended = [
        scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling, enable_gqa=True, **_seen(q, k))
        for q, k, v in zip(queries, keys, values, strict=True)
    ]
    return torch.cat(attended, dim=2).transpose(1, 2).to(query.dtype)


def _require_plain_scores(softcap: float | None, s_aux: Tensor | None) -> None:
    if softcap is None and s_aux is None:
        return
    what = f"a soft cap of scores ({softcap})" if softcap is not None else "attention sinks (s_aux)"
    raise ValueError(
        f"attn_implementation={NAME} does not compute {what}: set attn_implementation=eager and "
        "use_remove_padding=false in the model's group, or use another model"
    )


def flash_attention(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, scaling: float | None
) -> Tensor:
    """torch's flash attention, causal, within sequences that lie between `bounds`: 0, and the end of each, as int32.

    query: (heads, tokens, size). key, value: (heads of keys, tokens, size). Returns (1, tokens, heads, size).
    """
    shared = query.shape[0] // key.shape[0]  # query heads of each key
    queries = query.transpose(0, 1).contiguous()
    keys, values = (states.transpose(0, 1).repeat_interleave(shared, dim=1) for states in (key, value))
    attended = varlen_attn(queries, keys, values, bounds, bounds, longest, longest, scale=scaling, window_size=(-1, 0))
    assert isinstance(attended, Tensor)  # more only on request
    return attended.unsqueeze(0)


def _of_sequences(states: Tensor, branches: Branches) -> tuple[Tensor, ...]:
    """States (1, heads, rows, size) of each sequence, with those of its prefix."""
    if any(branches.before):
        states = states.index_select(2, branches.rows)
    parts: tuple[Tensor, ...] = states.split(branches.lengths, dim=2)
    return parts


def _seen(query: Tensor, key: Tensor) -> dict[str, Any]:
    """Each query sees the keys up to its own; the last query's is the last key."""
    new, all_ = query.shape[2], key.shape[2]
    if new == all_:
        return {"is_causal": True}
    return {"attn_mask": torch.ones(new, all_, dtype=torch.bool).tril(all_ - new)}


def register_packed_attention() -> None:
    """Make ``attn_implementation=packed`` known to transformers, which then builds no mask for it. Idempotent."""
    AttentionInterface.register(NAME, packed_attention)
