"""Do the engine's answers come from the weights that were trained? Digests of the adapter, there and here.

vLLM keeps an adapter that it has under the same number, and a sleeping engine may lose the memory of one: both leave
the engine with other weights than the actor's, without an error.
"""

import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from workers.digests import CONSEQUENCE, WeightsDifferError

logger = logging.getLogger(__name__)
_NOT_COMPARED = set[str]()


def digest(matrices: Iterable[tuple[str, Tensor]]) -> str:
    """Short hash of an adapter's matrices in any order. matrices: `_place`, values."""
    parts = sorted(f"{place} {tuple(values.shape)} {_digest_of_bytes(values)}" for place, values in matrices)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _place(module: str, side: str) -> str:
    """The numbers in a module's name and "A" or "B": vLLM renames and joins modules, but within a numbered layer."""
    return " ".join([*(part for part in module.split(".") if part.isdigit()), side])


def _digest_of_bytes(values: Tensor) -> str:
    return hashlib.sha256(values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data).hexdigest()


def digest_of_actor(weights: Iterable[tuple[str, Tensor]], peft: Mapping[str, Any], dtype: torch.dtype) -> str | None:
    """Digest of an adapter by peft's names and configuration, as vLLM keeps it: in its dtype, with the scale in B.

    None if it has more than pairs of A and B of linear layers.
    """
    scale = peft["lora_alpha"] / (math.sqrt(peft["r"]) if peft.get("use_rslora") else peft["r"])
    matrices = []
    for name, values in weights:
        kept = values.detach().to(dtype)
        if ".lora_A." in name:
            matrices.append((_place(name, "A"), kept))
        elif ".lora_B." in name:
            matrices.append((_place(name, "B"), kept if scale == 1 else kept * scale))
        else:
            return None
    return digest(matrices)


class HeldAdapter:
    """Part of a vLLM worker's extension: the digest of the adapter in the memory that vLLM computes with.

    Not for tensor parallelism, in which each worker has slices.
    """

    model_runner: Any

    def require_adapter(self, number: int, trained: str, step: int | None) -> None:
        """Compare the adapter with this number with the digest of the trained one. The error is the only answer: verl's
        server drops what a method returns.

        Raises:
            WeightsDifferError: they differ.
        """
        if (found := self.adapter_digest(number)) != trained:
            raise WeightsDifferError(
                f"after step {step} the engine computes with adapter {found}, and {trained} was trained: {CONSEQUENCE}"
            )

    def adapter_digest(self, number: int) -> str:
        """Digest of the adapter with this number; that of none, if vLLM would not use it."""
        manager = self.model_runner.lora_manager._adapter_manager
        if number not in manager.lora_index_to_id:
            return digest([])
        slot, rank = manager.lora_index_to_id.index(number), manager.get_adapter(number).rank
        matrices = []
        for name, layer in manager.modules.items():
            for a, b in zip(_slices(layer.lora_a_stacked), _slices(layer.lora_b_stacked), strict=True):
                if a[slot].any():  # zeros where the adapter has no matrices
                    matrices += [(_place(name, "A"), a[slot, 0, :rank]), (_place(name, "B"), b[slot, 0, :, :rank])]
        return digest(matrices)


def _slices(stacked: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The parts of a layer, each (adapters, 1, rows, columns); the head has one, without a tuple."""
    return (stacked,) if isinstance(stacked, Tensor) else stacked


async def update_and_compare(
    update: Callable[..., Awaitable[None]],
    require: Callable[[str, int | None], Awaitable[None]],
    dtype: torch.dtype,
    weights: Iterable[tuple[str, Tensor]],
    **options: Any,
) -> None:
    """Send weights with verl's `update`; if they are an adapter, compare what the engine has then with it.

    require: the engine's `require_adapter`, of the trained adapter's digest and step. dtype: of the engine.

    Raises:
        WeightsDifferError: they differ.
    """
    peft = options.get("peft_config")
    if not peft or not options.get("base_sync_done"):
        await update(weights, **options)
        return
    adapter = list(weights)
    await update(iter(adapter), **options)
    if (sent := digest_of_actor(adapter, peft, dtype)) is not None:
        await require(sent, options.get("global_steps"))
        return
    others = {name for name, _ in adapter if ".lora_A." not in name and ".lora_B." not in name}
    if others - _NOT_COMPARED:  # once, not in every step
        _NOT_COMPARED.update(others)
        logger.warning(
            "the adapter that the engine computes with is not compared with the trained one: it has %s beside pairs of "
            "linear layers. Watch training/rollout_probs_diff_mean",
            ", ".join(sorted(others)[:3]),
        )
