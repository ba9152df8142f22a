"""The diagonal metric in which Adam moves parameters: H = sqrt(v / (1 - beta_2^t)) + eps, per parameter.

Adam moves a parameter by its learning rate times m / H, so a move costs it H. A projection in this metric changes first
what Adam changes easily. The learning rate is the same everywhere, and scales H without an effect.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workers.displacement import local_shard

# Added to Adam's eps, as a share of the root mean square of its sqrt(v): a parameter whose gradient has been 0 so far
# would else move for nothing.
FLOOR = 1e-2
# Elements of a pass whose intermediate results stay in the cache; sums of so many lose no digits in fp32.
_BLOCK = 2**16


class MetricError(ValueError):
    """The optimiser has no second moment of the gradients."""


def adam_inverse_metric(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Any], group: Any = None
) -> list[Tensor] | None:
    """H^-1 for the local shard of each of these parameters, fp32; None before the optimiser's first step.

    Collective: the floor of H is that over all ranks of `group`.

    Raises:
        MetricError: the optimiser has state, but no `exp_avg_sq`.
    """
    if not optimizer.state:
        return None
    settings = {id(each): options for options in optimizer.param_groups for each in options["params"]}
    moments = [_SecondMoment.of(optimizer.state.get(each, {}), settings[id(each)], each) for each in parameters]
    total = torch.tensor([sum(each.total for each in moments), sum(each.shard.numel() for each in moments)]).double()
    if group is not None or torch.distributed.is_initialized():
        torch.distributed.all_reduce(total, group=group)
    least = FLOOR * math.sqrt(float(total[0] / total[1].clamp(min=1)))
    return [each.inverse(least) for each in moments]


@dataclass(frozen=True)
class _SecondMoment:
    """v of a parameter's local shard, its bias correction 1 / (1 - beta_2^t), and Adam's eps."""

    shard: Tensor
    correction: float
    eps: float

    @staticmethod
    def of(state: dict[str, Any], options: dict[str, Any], parameter: Any) -> "_SecondMoment":
        """From the optimiser's state of a parameter; zeros where no gradient has reached it yet."""
        if state and "exp_avg_sq" not in state:
            raise MetricError(
                f"projection.metric=adam needs an optimiser of Adam's kind; this one keeps {sorted(state)}: set "
                "projection.metric=euclidean or actor_rollout_ref.actor.optim.optimizer=AdamW"
            )
        if not state:
            return _SecondMoment(torch.zeros_like(local_shard(parameter.detach())), 1.0, options["eps"])
        return _SecondMoment(
            local_shard(state["exp_avg_sq"]), 1 / (1 - options["betas"][1] ** float(state["step"])), options["eps"]
        )

    @property
    def total(self) -> float:
        """Sum of v / (1 - beta_2^t)."""
        sums = [part.sum(dtype=torch.float32) for part in self.shard.reshape(-1).split(_BLOCK)]
        return float(torch.stack(sums).sum(dtype=torch.float64)) * self.correction if sums else 0.0

    def inverse(self, least: float) -> Tensor:
        """1 / (sqrt(v / (1 - beta_2^t)) + eps + least), in fp32."""
        inverse = torch.empty(self.shard.shape, dtype=torch.float32, device=self.shard.device)
        # With s = sqrt(correction): 1 / (s sqrt(v) + e) = (1 / s) / (sqrt(v) + e / s).
        scale = math.sqrt(self.correction)
        above = inverse.new_tensor(1 / scale)
        for part, out in zip(self.shard.reshape(-1).split(_BLOCK), inverse.view(-1).split(_BLOCK), strict=True):
            torch.sqrt(part.float(), out=out).add_((self.eps + least) / scale)
            torch.div(above, out, out=out)
        return inverse
