"""The diagonal metric in which Adam moves parameters: H = sqrt(v / (1 - beta_2^t)) + eps, per parameter.

Adam moves a parameter by its learning rate times m / H, so a move costs it H. A projection in this metric changes first
what Adam changes easily. The learning rate is the same everywhere, and scales H without an effect.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from workers.displacement import local_shard

# Smallest H as a share of its mean: a parameter whose gradient has been 0 so far would else move for nothing.
FLOOR = 1e-2


class MetricError(ValueError):
    """The optimiser has no second moment of the gradients."""


def adam_inverse_metric(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Any], group: Any = None
) -> list[Tensor] | None:
    """H^-1 for the local shard of each of these parameters, fp32; None before the optimiser's first step.

    Collective: the mean of H is that over all ranks of `group`.

    Raises:
        MetricError: the optimiser has state, but no `exp_avg_sq`.
    """
    if not optimizer.state:
        return None
    settings = {id(each): options for options in optimizer.param_groups for each in options["params"]}
    diagonals = [_diagonal(optimizer.state.get(each, {}), settings[id(each)], each) for each in parameters]
    total = torch.zeros(2, dtype=torch.float64)
    for diagonal in diagonals:
        total += torch.tensor([float(diagonal.sum(dtype=torch.float64)), diagonal.numel()], dtype=torch.float64)
    if group is not None or torch.distributed.is_initialized():
        torch.distributed.all_reduce(total, group=group)
    least = FLOOR * float(total[0] / total[1])
    return [diagonal.clamp_(min=least).reciprocal_() for diagonal in diagonals]


def _diagonal(state: dict[str, Any], options: dict[str, Any], parameter: Any) -> Tensor:
    if state and "exp_avg_sq" not in state:
        raise MetricError(
            f"projection.metric=adam needs an optimiser of Adam's kind; this one keeps {sorted(state)}: set "
            "projection.metric=euclidean or actor_rollout_ref.actor.optim.optimizer=AdamW"
        )
    if not state:  # no gradient has reached it yet
        return torch.zeros_like(local_shard(parameter.detach()), dtype=torch.float32)
    steps = float(state["step"])
    seen: Tensor = local_shard(state["exp_avg_sq"]).float() / (1 - options["betas"][1] ** steps)
    return seen.sqrt_().add_(options["eps"])
