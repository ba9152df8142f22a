"""An accelerator that exists by name only: its tensors lie on the CPU and refuse what a GPU's would refuse.

``with LogicalDevice(): ...`` creates tensors with ``device="cuda"`` and computes with them. An operation that mixes
them with tensors of the host fails as on a GPU; copies, numbers of no dimension and host indices are allowed.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

DEVICE = torch.device("lazy", 0)
_COPIES = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
_TAKES_HOST_INDICES = (
    torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default,
)  # fmt: skip


class MixedDevices(RuntimeError):
    """An operation got tensors of the accelerator and of the host."""


class OnDevice(Tensor):
    """A tensor on the accelerator, whose values lie on the CPU."""

    on_host: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> "OnDevice":
        made: OnDevice = Tensor._make_wrapper_subclass(
            cls, values.size(), strides=values.stride(), storage_offset=values.storage_offset(), dtype=values.dtype,
            device=DEVICE,
        )  # fmt: skip
        made.on_host = values
        return made

    # Torch carries out these two below the dispatcher.
    def tolist(self) -> Any:
        return self.on_host.tolist()

    def new_tensor(self, data: Any, **options: Any) -> Tensor:  # type: ignore[override]
        return self.on_host.new_tensor(data, **options).to(DEVICE)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"OnDevice({self.on_host})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return dispatched(func, args, kwargs or {})


class LogicalDevice(TorchDispatchMode):
    """Within it, tensors can be created on the accelerator."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return dispatched(func, args, kwargs or {})


def dispatched(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on the CPU; its results are on the accelerator if it asks for that or its arguments are."""
    tensors = [one for one in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
    there = [one for one in tensors if isinstance(one, OnDevice)]
    if there and func not in _COPIES:
        host = [one for one in tensors if not isinstance(one, OnDevice) and one.dim() > 0]
        if host and not (func in _TAKES_HOST_INDICES and isinstance(args[0], OnDevice)):
            raise MixedDevices(f"{func}: a tensor of shape {tuple(host[0].shape)} is on the host, others are not")
    device = kwargs.get("device")
    to_device = bool(there) if device is None else torch.device(device).type == DEVICE.type
    if device is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    known = {id(one.on_host): one for one in there}
    inner_args, inner_kwargs = tree_map(lambda one: one.on_host if isinstance(one, OnDevice) else one, (args, kwargs))
    made = func(*inner_args, **inner_kwargs)
    if func is torch.ops.aten.copy_.default:
        return args[0]

    def wrapped(one: Any) -> Any:
        if not isinstance(one, Tensor) or not to_device:
            return one
        return known[id(one)] if id(one) in known else OnDevice(one)

    return tree_map(wrapped, made)
