"""Keep an update inside the set that protects skills: project the displacement of the trainable parameters.

The guarantee is first-order and holds for what the optimiser really did: after every optimiser step the whole
displacement since the start of the update is projected and written back (docs/reference/skill_safe.md).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal

import torch
from torch import Tensor

from workers.displacement import displacement_norm
from workers.projection import NotFiniteError, Projection, constraint_gram, project
from workers.serialization import from_fields, to_fields
from workers.solution_store import StoredSolution, plain_solutions

# What is projected: the displacement by the optimiser, or the gradient before its step.
Space = Literal["displacement", "gradient"]
# The field of a batch in which the trainer sends a Protection, as `Protection.to_dict`.
PROTECTION = "skillcredit_protection"


@dataclass(frozen=True)
class Constraint:
    """One requested constraint: its name in metrics, the skill, stored solutions (None: the batch's own samples)."""

    name: str
    skill: int
    solutions: Sequence[StoredSolution] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a batch."""
        solutions = None if self.solutions is None else plain_solutions(self.solutions)
        return to_fields(self) | {"solutions": solutions}

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> "Constraint":
        """Inverse of `to_dict`; ValueError for an unknown key."""
        stored = given.get("solutions")
        solutions = None if stored is None else [StoredSolution(*each) for each in stored]
        return from_fields(Constraint, {**given, "solutions": solutions})


@dataclass(frozen=True)
class Protection:
    """The trainer's request for an update: which constraints, and how to enforce them (config group projection).

    shared_pass: take the constraints' gradients from the update's own pass, if it has one optimiser step. token_mean:
    the policy's loss is a mean over tokens, not over samples, and so are the objectives of rollouts. method: one of
    `workers.projection.METHODS`.
    """

    constraints: Sequence[Constraint]
    method: str
    epsilon: float
    epsilon_kind: str
    space: str = "displacement"
    average: float = 0.0
    shared_pass: bool = False
    token_mean: bool = False

    @property
    def names(self) -> list[str]:
        return [constraint.name for constraint in self.constraints]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a batch."""
        return to_fields(self) | {"constraints": [each.to_dict() for each in self.constraints]}

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> "Protection":
        """Inverse of `to_dict`; ValueError for an unknown key."""
        constraints = [Constraint.from_dict(each) for each in given["constraints"]]
        return from_fields(Protection, {**given, "constraints": constraints})


@dataclass
class SafeUpdate:
    """One update of the policy: its start, its constraints, and the result of the last projection.

    start: copies of the trainable shards. constraints: for each of them (S, *shape), ascent gradients at the start.
    gram: their inner products, None if they are not finite. noted: metrics of the constraints. last: the last
    projection, without its vector.

    Counts of optimiser steps: skipped (with method none: not measured), projected, stalled (almost nothing was left),
    infeasible (no step could satisfy a negative epsilon), violated (the method left a constraint violated).

    Memory: start, constraints and one step, S + 2 copies of the trainable shards.
    """

    protection: Protection
    constraints: list[Tensor]
    start: list[Tensor]
    group: Any = None
    gram: Tensor | None = None
    noted: dict[str, float] = field(default_factory=dict)
    last: Projection | None = None
    skipped: int = 0
    projected: int = 0
    stalled: int = 0
    infeasible: int = 0
    violated: int = 0

    def before_step(self, gradients: Sequence[Tensor]) -> bool:
        """In gradient space: change the gradients so that descending them satisfies the constraints.

        Returns whether the optimiser may step: not if something is not finite, for its momentum would still move it.
        """
        if self.protection.space != "gradient":
            return True
        skipped = self.skipped
        step = [(-gradient).contiguous() for gradient in gradients]
        if self._project(step):
            for gradient, move in zip(gradients, step, strict=True):
                gradient.copy_(-move)
        return self.protection.method == "none" or self.skipped == skipped

    def after_step(self, shards: Sequence[Tensor]) -> None:
        """Project theta - theta_old and write theta_old + x back; the same bits if the constraints hold already.

        If the displacement or a gradient is not finite, the whole displacement is undone, and counted. If the optimiser
        did nothing, the parameters stay as they are, even if a negative epsilon asks for gain.
        """
        if self.protection.space != "displacement":
            return
        if self.protection.epsilon < 0 and displacement_norm(self.start, shards, self.group) == 0:
            return
        step = [(shard - old).contiguous() for shard, old in zip(shards, self.start, strict=True)]
        if self._project(step):
            for shard, old, move in zip(shards, self.start, step, strict=True):
                shard.copy_(old + move)

    def _project(self, step: list[Tensor]) -> bool:
        """Project a step in place; return whether it changed."""
        try:
            found = project(
                step,
                self.constraints,
                epsilon=self.protection.epsilon,
                method=self.protection.method,
                epsilon_kind=self.protection.epsilon_kind,
                gram=self.gram,
                process_group=self.group,
                in_place=True,
            )
        except NotFiniteError:
            self.skipped += 1
            if self.protection.method == "none":
                return False
            for part in step:
                part.zero_()
            return True
        changed = found.kept != 1 or bool(found.multipliers.any())
        self.projected += changed
        self.stalled += found.stalled
        self.infeasible += not found.feasible
        self.violated += found.missed
        self.last = replace(found, step=None)  # the next step allocates its own memory
        return changed

    def metrics(self) -> dict[str, float]:
        """Metrics of the constraints and of the update's last projection, and the counts of its steps."""
        numbers = self.noted | {
            "projection/projected_steps": float(self.projected),
            "projection/skipped_steps": float(self.skipped),
        }
        if self.last is None:
            return numbers
        numbers |= {
            "projection/moved": self.last.moved,
            "projection/stalled": float(self.stalled),
            "projection/infeasible": float(self.infeasible),
            "projection/violated_steps": float(self.violated),
            "projection/unprotected_skills": float(self._unprotected()),
        }
        for index, name in enumerate(self.protection.names):
            numbers[f"projection/multiplier/{name}"] = float(self.last.multipliers[index])
            numbers[f"projection/cosine/{name}"] = float(self.last.cosines[index])
            numbers[f"projection/gradient_norm/{name}"] = float(self.last.norms[index])
            numbers[f"projection/predicted_change/{name}"] = float(self.last.change[index])
            numbers[f"projection/unprotected/{name}"] = float(self.last.norms[index] == 0)
        return numbers

    def _unprotected(self) -> int:
        """Number of skills whose constraints all have a gradient of zero."""
        assert self.last is not None
        skills = [constraint.skill for constraint in self.protection.constraints]
        live = {skill for skill, norm in zip(skills, self.last.norms.tolist(), strict=True) if norm > 0}
        return len(set(skills) - live)


@dataclass(frozen=True)
class Angles:
    """Inner products (S, S) of an update's constraint gradients, over all parameters and per type of module."""

    names: Sequence[str]
    modules: dict[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(names: Sequence[str], constraints: Sequence[Tensor], modules: Sequence[str], group: Any) -> "Angles":
        """modules: the type of module that each parameter belongs to, the same on every rank.

        Raises:
            NotFiniteError: NaN or infinity in the gradients of any rank.
        """
        parts = defaultdict(list)
        for block, module in zip(constraints, modules, strict=True):
            parts[module].append(block)
        return Angles(names, {module: constraint_gram(blocks, group) for module, blocks in parts.items()})

    @property
    def gram(self) -> Tensor:
        return torch.stack(list(self.modules.values())).sum(0)

    def metrics(self) -> dict[str, float]:
        """``projection/pair_cosine/<a>~<b>``, and the same under ``projection/module_cosine/<module>/``.

        Pairs with a gradient of zero are left out.
        """
        numbers = {f"projection/pair_cosine/{pair}": value for pair, value in self._cosines(self.gram)}
        for module, gram in self.modules.items():
            numbers |= {f"projection/module_cosine/{module}/{pair}": value for pair, value in self._cosines(gram)}
        return numbers

    def _cosines(self, gram: Tensor) -> Iterator[tuple[str, float]]:
        for one, other in combinations(range(len(self.names)), 2):
            size = math.sqrt(float(gram[one, one] * gram[other, other]))
            if size > 0:
                yield f"{self.names[one]}~{self.names[other]}", float(gram[one, other]) / size
