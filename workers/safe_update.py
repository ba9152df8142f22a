"""Keeps an update inside the set that protects skills: projects the displacement of the trainable parameters.

The guarantee is first-order and holds for what the optimiser really did: after every optimiser step the whole
displacement since the start of the update is projected and written back (docs/skill_safe.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workers.projection import NotFiniteError, Projection, project

# The field of a batch in which the trainer sends the arguments of a Protection.
PROTECTION = "skillcredit_protection"


@dataclass(frozen=True)
class Protection:
    """What the trainer asks of an update: which skills, and how they are protected (config group projection)."""

    skills: Sequence[int]
    names: Sequence[str]
    method: str
    epsilon: float
    epsilon_kind: str


@dataclass
class SafeUpdate:
    """One update of the policy: where it started, what must not fall, and what the last projection did.

    start: copies of the trainable shards. constraints: for each of them (S, *shape), ascent gradients at the start.
    """

    protection: Protection
    constraints: list[Tensor]
    start: list[Tensor]
    group: Any = None
    last: Projection | None = None
    skipped: int = 0
    projected: int = 0

    def after_step(self, shards: Sequence[Tensor]) -> None:
        """Project theta - theta_old and write theta_old + x back; the same bits where the constraints hold already.

        A displacement or a gradient that is not finite is taken back whole, and counted.
        """
        step = [shard - old for shard, old in zip(shards, self.start, strict=True)]
        try:
            self.last = project(
                step,
                self.constraints,
                epsilon=self.protection.epsilon,
                method=self.protection.method,
                epsilon_kind=self.protection.epsilon_kind,
                process_group=self.group,
            )
        except NotFiniteError:
            self.skipped += 1
            self._write(shards, [torch.zeros_like(old) for old in self.start])
            return
        if self.last.step is not step:
            self.projected += 1
            self._write(shards, self.last.step)

    def _write(self, shards: Sequence[Tensor], step: Sequence[Tensor]) -> None:
        for shard, old, move in zip(shards, self.start, step, strict=True):
            shard.copy_(old + move)

    def metrics(self) -> dict[str, float]:
        """Of the update's last projection, by skill; and how often steps were projected or skipped in it."""
        numbers = {"projection/projected_steps": float(self.projected), "projection/skipped_steps": float(self.skipped)}
        if self.last is None:
            return numbers
        numbers |= {
            "projection/moved": self.last.moved,
            "projection/stalled": float(self.last.stalled),
            "projection/infeasible": float(not self.last.feasible),
            "projection/unprotected_skills": float((self.last.norms == 0).sum()),
        }
        for index, name in enumerate(self.protection.names):
            numbers[f"projection/multiplier/{name}"] = float(self.last.multipliers[index])
            numbers[f"projection/cosine/{name}"] = float(self.last.cosines[index])
            numbers[f"projection/gradient_norm/{name}"] = float(self.last.norms[index])
            numbers[f"projection/predicted_change/{name}"] = float(self.last.change[index])
        return numbers
