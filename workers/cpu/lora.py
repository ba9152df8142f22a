"""vLLM's LoRA on a CPU for one adapter: two matrix products, not a copy of the adapter for each token.

vLLM's own wrapper serves many adapters: it gathers ``weights[adapter of each token]``, which at 135 M parameters takes
longer than the rest of the model. In training all rows of a batch use the policy's one adapter.
"""

from typing import Any

import torch
from torch import Tensor
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU


class OneAdapterPunicaWrapper(PunicaWrapperCPU):
    """vLLM's CPU wrapper with matrix products where every token of a batch has the same adapter, or none."""

    _slot: int | None = None
    """Slot of the one adapter of this batch's tokens, -1 without an adapter; None: several."""

    def update_metadata(self, *arguments: Any, **options: Any) -> None:
        super().update_metadata(*arguments, **options)
        slots = torch.unique(self.token_lora_indices)
        self._slot = int(slots[0]) if len(slots) == 1 else None

    def add_lora_linear(
        self,
        y: Tensor,
        x: Tensor,
        lora_a_stacked: tuple[Tensor, ...],
        lora_b_stacked: tuple[Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        **options: Any,
    ) -> None:
        """Add ``scale * x A' B'`` to each slice of y in place.

        Args:
            y: (tokens, sum of output_slices). x: (tokens, inputs). lora_a_stacked: per slice (adapters, 1, rank,
                inputs). lora_b_stacked: per slice (adapters, 1, outputs of the slice, rank).
        """
        if self._slot is None:
            super().add_lora_linear(y, x, lora_a_stacked, lora_b_stacked, scale, output_slices, **options)
            return
        if self._slot < 0:
            return
        y, x = y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1])
        start = 0
        for a, b, size in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
            _add_product(y[:, start : start + size], x, a[self._slot, 0], b[self._slot, 0], scale)
            start += size

    def add_lora_logits(
        self,
        y: Tensor,
        x: Tensor,
        lora_a_stacked: Tensor,
        lora_b_stacked: Tensor,
        scale: float,
        **options: Any,
    ) -> None:
        """Add the head's adapter to the logits y (rows, vocabulary) in place; most adapters have none there."""
        if self._slot is None:
            super().add_lora_logits(y, x, lora_a_stacked, lora_b_stacked, scale, **options)
            return
        if self._slot < 0:
            return
        a, b = lora_a_stacked[self._slot, 0], lora_b_stacked[self._slot, 0]
        if a.any():
            _add_product(y.view(-1, y.shape[-1])[:, : len(b)], x.view(-1, x.shape[-1]), a, b, scale)


def _add_product(y: Tensor, x: Tensor, a: Tensor, b: Tensor, scale: float) -> None:
    """y += scale * (x a') b', rounded between the products as vLLM's own functions round."""
    low = x.to(a.dtype) @ a.T
    y.addmm_(low.to(y.dtype), b.T.to(y.dtype), alpha=scale)
