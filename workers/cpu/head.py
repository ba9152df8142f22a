"""Log-probabilities and entropies of the tokens that a loss uses, without keeping their logits.

A vocabulary of 49,152 makes the logits the largest part of a small model's pass: verl's fused function passes over them
a dozen times, for the prompts' tokens too. Here they are made in blocks that fit a processor's cache, for the tokens
that were generated, and again in the backward pass.
"""

import types
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from transformers import PreTrainedModel
from verl.models.transformers.dense_common import CausalLMOutputForPPO

from workers.cpu.architecture import beyond_fast_head
from workers.cpu.prefixes import shared_prefixes

BLOCK = 1 << 22
"""Logits in a block."""


class _TokenStatistics(torch.autograd.Function):
    """Log-probabilities and entropies (N) of labels under a linear head."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        log_probs, entropies, normalizers = (hidden.new_empty(len(labels), dtype=torch.float32) for _ in range(3))
        for rows in _blocks(len(labels), len(weight)):
            logits = _logits(hidden[rows], weight, temperature)
            peaks = logits.amax(dim=1)
            logits.sub_(peaks[:, None])
            exponentials = logits.exp()
            sums = exponentials.sum(dim=1)
            log_probs[rows] = logits.gather(1, labels[rows, None])[:, 0] - sums.log()
            entropies[rows] = sums.log() - torch.linalg.vecdot(exponentials, logits) / sums
            normalizers[rows] = peaks + sums.log()
        ctx.save_for_backward(hidden, weight, labels, normalizers, entropies)
        ctx.temperature = temperature
        ctx.set_materialize_grads(False)
        return log_probs, entropies

    @staticmethod
    def backward(ctx: Any, d_log_probs: Tensor | None, d_entropies: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, labels, normalizers, entropies = ctx.saved_tensors
        d_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        for rows in _blocks(len(labels), len(weight)):
            d_logits = _logits(hidden[rows], weight, ctx.temperature).sub_(normalizers[rows, None])
            # d entropy / d logit = -p (log p + entropy)
            surprise = None if d_entropies is None else d_logits + entropies[rows, None]
            d_logits.exp_()
            if surprise is not None and d_entropies is not None:
                surprise.mul_(d_logits).mul_(d_entropies[rows, None])
            # d log p(label) / d logit = [label] - p
            if d_log_probs is None:
                d_logits.zero_()
            else:
                d_logits.mul_(-d_log_probs[rows, None])
                d_logits.scatter_add_(1, labels[rows, None], d_log_probs[rows, None].float())
            if surprise is not None:
                d_logits.sub_(surprise)
            gradient = d_logits.div_(ctx.temperature).to(weight.dtype)
            if d_hidden is not None:
                d_hidden[rows] = gradient @ weight
            if d_weight is not None:
                d_weight += gradient.T @ hidden[rows]
        return d_hidden, None if d_weight is None else d_weight.to(weight.dtype), None, None


def token_statistics(hidden: Tensor, weight: Tensor, labels: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Log-probabilities of labels and entropies of their distributions, both (N) in float32.

    Args:
        hidden: (N, width), the last layer's states. weight: (vocabulary, width), of the head. labels: (N).
    """
    log_probs, entropies = _TokenStatistics.apply(hidden, weight, labels, temperature)  # type: ignore[no-untyped-call]
    return log_probs, entropies


def _blocks(rows: int, vocabulary: int) -> list[slice]:
    size = max(1, BLOCK // vocabulary)
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def _logits(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """In float32, from a product in the model's precision, as vLLM computes them."""
    logits = (hidden @ weight.T).float()
    return logits if temperature == 1.0 else logits.div_(temperature)


def predicting_positions(batch: TensorDict) -> Tensor:
    """Packed positions whose outputs a loss uses: each predicts the next token, generated or demonstrated.

    Args:
        batch: of verl, with nested ``input_ids`` and ``responses``, or without responses a ``loss_mask`` of all tokens.
    """
    if "responses" not in batch:
        mask = batch["loss_mask"].values().bool()
        return torch.nonzero(mask.roll(-1)).flatten()
    ends = batch["input_ids"].offsets()[1:].tolist()
    if batch["responses"].is_nested:
        lengths = batch["responses"].offsets().diff().tolist()
    else:
        prompt = batch["prompts"].shape[1]
        lengths = batch["attention_mask"][:, prompt:].sum(dim=1).tolist()
    spans = [torch.arange(end - 1 - length, end - 1) for end, length in zip(ends, lengths, strict=True)]
    return torch.cat(spans)


def require_plain_head(model: PreTrainedModel) -> None:
    """Raise ValueError for a model whose logits are not hidden states times the weight of its head."""
    if lacking := beyond_fast_head(model):
        raise ValueError(
            f"the fused kernels do not compute {', '.join(lacking)} of {type(model).__name__}: set "
            "use_fused_kernels=false in the model's group, or use another model"
        )


def use_fast_head(model: PreTrainedModel) -> None:
    """Give one causal model the forward below, in place of verl's fused one."""
    model.forward = types.MethodType(_forward, model)


def _forward(
    self: Any,
    input_ids: Tensor,
    position_ids: Tensor,
    positions: Tensor,
    shift_labels: Tensor,
    temperature: float,
    **inputs: Any,
) -> CausalLMOutputForPPO:
    """Statistics (1, tokens) at `positions`, zero elsewhere.

    Args:
        input_ids, position_ids: (1, tokens). positions: (N), see predicting_positions. shift_labels: (1, tokens), the
            next tokens.
    """
    inputs.pop("return_dict", None)
    prefixes = shared_prefixes(input_ids[0], position_ids[0])
    once = {"input_ids": input_ids[:, prefixes.kept], "position_ids": position_ids[:, prefixes.kept]}
    hidden = self.model(**once, prefixes=prefixes, **inputs)[0][0]
    labels = shift_labels[0, positions]
    # Its gradient adds in one order; that of hidden[...] in the order in which threads come, so runs would differ.
    states = hidden.index_select(0, prefixes.rows[positions])
    figures = token_statistics(states, self.lm_head.weight, labels, temperature)
    log_probs, entropies = (torch.zeros(input_ids.shape[1]).index_put((positions,), values)[None] for values in figures)
    return CausalLMOutputForPPO(log_probs=log_probs, entropy=entropies)  # type: ignore[arg-type]
