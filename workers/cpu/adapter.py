"""Linear layers with LoRA in the trainer on a CPU: products alone, without passes over the whole output.

peft scales and adds the adapter's output in separate passes, and autograd adds the two gradients of the input in
another. On a CPU such passes over memory take as long as the products. Here products accumulate into the result.
"""

import types
from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor, nn
from torch.nn.functional import linear


class _LoraProduct(torch.autograd.Function):
    """y = x W' + bias + scale (x A') B', for inputs (rows, inputs); W and the bias, if any, are frozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float) -> Tensor:
        low = x @ a.T
        ctx.save_for_backward(x, weight, a, b, low)
        ctx.scale = scale
        return linear(x, weight, bias).addmm_(low, b.T, alpha=scale)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, a, b, low = ctx.saved_tensors
        d_low = (dy @ b).mul_(ctx.scale)
        dx = (dy @ weight).addmm_(d_low, a) if ctx.needs_input_grad[0] else None
        return dx, None, None, d_low.T @ x, (dy.T @ low).mul_(ctx.scale), None


def use_lora_products(model: nn.Module) -> None:
    """Give the LoRA layers of a peft model the forward below."""
    for layer in model.modules():
        if isinstance(layer, Linear):
            layer.forward = types.MethodType(_forward, layer)  # type: ignore[method-assign]


def _forward(self: Any, x: Tensor, *arguments: Any, **options: Any) -> Tensor:
    """peft's result, to rounding: by products for one plain adapter without dropout, by its own forward otherwise."""
    (name, *others) = self.active_adapters or [None]
    base = self.base_layer
    plain = (
        not (self.disable_adapters or self.merged or others or arguments or options)
        and name in self.lora_A
        and name not in self.lora_variant
        and isinstance(self.lora_dropout[name], nn.Identity)
        and not self.lora_bias[name]
        and not any(parameter.requires_grad for parameter in base.parameters())
    )
    if not plain:
        result: Tensor = Linear.forward(self, x, *arguments, **options)
        return result
    kind = x.device.type  # products in place are not autocast: their factors have one precision before
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else base.weight.dtype
    rows, a, b = x.reshape(-1, x.shape[-1]), self.lora_A[name].weight, self.lora_B[name].weight
    factors = (None if one is None else one.to(dtype) for one in (rows, base.weight, base.bias, a, b))
    product: Tensor = _LoraProduct.apply(*factors, self.scaling[name])  # type: ignore[no-untyped-call]
    return product.view(*x.shape[:-1], product.shape[-1])
