"""Penalties on the distance from old parameters, the classic remedies for forgetting. Baselines for projection.

    penalty = strength/2 sum_i F_i (theta_i - theta_old_i)^2

L2: F = 1. EWC (Kirkpatrick et al. 2017, arXiv 1612.00796, eq. 3): F is the diagonal of the Fisher information, summed
over the finished stages, and theta_old the parameters at the last stage's end (the online form: Schwarz et al. 2018,
arXiv 1805.06370, with gamma = 1). The first stage has no penalty. Rehearsal is none on distance, but takes the same
place: -strength times the mean log-likelihood per token of stored solutions (`Rehearsal`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from workers.displacement import numbered


@dataclass
class Rehearsal:
    """What one optimiser step rehearses: the ascent gradient of the mean log-likelihood per shard, and that mean."""

    gradients: Sequence[Tensor]
    level: float

    def add_gradient(self, gradients: Sequence[Tensor], strength: float) -> float:
        """Add the gradient of -strength times the mean log-likelihood, and return that value."""
        for gradient, ascent in zip(gradients, self.gradients, strict=True):
            gradient.sub_(ascent.to(gradient), alpha=strength)
        return -strength * self.level

    def square(self) -> Tensor:
        """This rank's part of the squared length of the gradient, () in fp64: not finite if a part of it is not."""
        return torch.stack([ascent.double().square().sum() for ascent in self.gradients]).sum()


@dataclass
class Penalty:
    """The penalty of this stage; anchor and importance are one tensor per trainable shard, empty in the first stage."""

    stage: int = 0
    anchor: list[Tensor] = field(default_factory=list)
    importance: list[Tensor] = field(default_factory=list)

    def begin_stage(self, stage: int, shards: Sequence[Tensor], fisher: Sequence[Tensor] | None) -> None:
        """Anchor at these parameters, and add the finished stage's Fisher information to that of earlier ones."""
        self.stage = stage
        self.anchor = [shard.clone() for shard in shards]
        if fisher is not None:
            old = self.importance or [torch.zeros_like(part) for part in fisher]
            self.importance = [new + before.to(new.device) for new, before in zip(fisher, old, strict=True)]

    def state(self) -> dict[str, Tensor]:
        """Tensors to checkpoint, by name; empty in the first stage."""
        if not self.anchor:
            return {}
        parts = {f"anchor.{index}": part for index, part in enumerate(self.anchor)}
        parts |= {f"importance.{index}": part for index, part in enumerate(self.importance)}
        return parts | {"penalty_stage": torch.tensor(self.stage)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned; other names are ignored."""
        if "penalty_stage" not in tensors:
            return
        self.stage = int(tensors["penalty_stage"])
        self.anchor = numbered(tensors, "anchor.")
        self.importance = numbered(tensors, "importance.")

    def add_gradient(self, gradients: Sequence[Tensor], shards: Sequence[Tensor], strength: float) -> Tensor:
        """Add the penalty's gradient to the gradients; returns this rank's part of the penalty, () in fp64."""
        self._move_to(shards)
        value = torch.zeros((), dtype=torch.float64, device=shards[0].device)
        for index, anchor in enumerate(self.anchor):
            distance = shards[index] - anchor
            gradient = strength * distance
            if self.importance:
                gradient = gradient * self.importance[index]
            gradients[index].add_(gradient)
            value += 0.5 * (gradient.double() * distance.double()).sum()
        return value

    def _move_to(self, shards: Sequence[Tensor]) -> None:
        """Move the penalty's tensors to the device once: restored on the host, a copy per step would dominate."""
        for kept in (self.anchor, self.importance):
            kept[:] = [part.to(shard.device) for part, shard in zip(kept, shards, strict=False)]
