"""Displacement of the trainable parameters by an update, measured over FSDP2 shards.

Dot products of DTensors are rank-local in torch (``(A * B).sum().item()``), so every sum here runs over local shards
in fp64 and is reduced once.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor


def local_shard(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a parameter (all of it where it is not sharded)."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def shard_group(engine: Any) -> torch.distributed.ProcessGroup:
    """The ranks that together hold each parameter once; sums over shards run over this group.

    FSDP's own group, the innermost dimension of its mesh. The data-parallel group differs: with sequence parallelism
    it has fewer ranks than there are shards, and with an `fsdp_size` below the world size several times as many.
    """
    mesh: DeviceMesh = engine.device_mesh
    return mesh.get_group(mesh.ndim - 1)


def trainable_shards(module: torch.nn.Module) -> list[torch.Tensor]:
    """Local shards of the trainable parameters, in the module's order; they share its memory."""
    return [local_shard(parameter.detach()) for parameter in module.parameters() if parameter.requires_grad]


def local_gradients(parameters: Iterable[torch.nn.Parameter]) -> list[torch.Tensor]:
    """Local shards of the parameters' gradients; zeros for a parameter without one."""
    return [
        torch.zeros_like(local_shard(parameter.detach())) if parameter.grad is None else local_shard(parameter.grad)
        for parameter in parameters
    ]


def module_types(module: torch.nn.Module) -> list[str]:
    """The type of module that each trainable parameter belongs to, such as ``q_proj``, in the module's order."""
    return [_module_type(name) for name, parameter in module.named_parameters() if parameter.requires_grad]


def _module_type(name: str) -> str:
    """The last part of a parameter's name that names a layer, not a part of the adapter or the tensor itself."""
    parts = [part for part in name.split(".")[:-1] if part not in ("default", "base_layer") and "lora_" not in part]
    return parts[-1] if parts else name


def snapshot(shards: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Copies that later steps do not change: one extra copy of the trainable parameters."""
    return [shard.clone() for shard in shards]


def displacement_norm(
    before: Sequence[torch.Tensor],
    after: Sequence[torch.Tensor],
    group: torch.distributed.ProcessGroup | None = None,
) -> float:
    """Euclidean norm of ``after - before`` over all ranks of ``group``, equal on each of them.

    Raises:
        ValueError: the lists do not hold tensors of the same shapes.
    """
    shapes = [tuple(shard.shape) for shard in before], [tuple(shard.shape) for shard in after]
    if shapes[0] != shapes[1]:
        raise ValueError(f"shapes differ: {shapes[0]} before, {shapes[1]} after")
    total = torch.zeros((), dtype=torch.float64)
    for old, new in zip(before, after, strict=True):
        total += (new.double() - old.to(new.device).double()).square().sum().cpu()
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(total, group=group)
    return float(total.sqrt())


def numbered(tensors: Mapping[str, torch.Tensor], prefix: str) -> list[torch.Tensor]:
    """Tensors named ``prefix`` plus a number, in the order of their numbers."""
    numbers = (name.removeprefix(prefix) for name in tensors if name.startswith(prefix))
    return [tensors[f"{prefix}{number}"] for number in sorted(filter(str.isdigit, numbers), key=int)]
