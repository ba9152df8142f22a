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

    _adapter: int | None = None
    """Slot of the one adapter of this batch's tokens, -1 without an adapter; None: several."""

    def update_metadata(self, *arguments: Any, **options: Any) -> None:
        super().update_metadata(*arguments, **options)
        slots = torch.unique(self.token_lora_indices)
        self._adapter = int(slots[0]) if len(slots) == 1 else None

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
        """Add ``scale * x A' B'`` to y in place, for each slice of y.

        Args:
            y: (tokens, sum of output_slices). x: (tokens, inputs). lora_a_stacked: per slice (adapters, 1, rank,
                inputs). lora_b_stacked: per slice (adapters, 1, outputs of the slice, rank).
        """
        if self._adapter is None:
            super().add_lora_linear(y, x, lora_a_stacked, lora_b_stacked, scale, output_slices, **options)
            return
        if self._adapter < 0:
            return
        y, x = y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1])
        start = 0
        for a_stacked, b_stacked, size in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
            a, b = a_stacked[self._adapter, 0], b_stacked[self._adapter, 0]
            low = (x.to(a.dtype) @ a.T).to(y.dtype)
            y[:, start : start + size].addmm_(low, b.T.to(y.dtype), alpha=scale)
            start += size
