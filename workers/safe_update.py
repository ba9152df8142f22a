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
from workers.solution_store import Solution, plain_solutions

# What is projected: what the optimiser did, or the gradient before it.
Space = Literal["displacement", "gradient"]
# The field of a batch in which the trainer sends a Protection, as `Protection.to_dict`.
PROTECTION = "skillcredit_protection"


@dataclass(frozen=True)
class Constraint:
    """One wanted constraint: its name in metrics, the skill, and stored solutions (None: the batch's own samples)."""

    name: str
    skill: int
    solutions: Sequence[Solution] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a batch."""
        solutions = None if self.solutions is None else plain_solutions(self.solutions)
        return to_fields(self) | {"solutions": solutions}

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> "Constraint":
        """What `to_dict` returned; ValueError for an unknown key."""
        stored = given.get("solutions")
        solutions = None if stored is None else [Solution(*each) for each in stored]
        return from_fields(Constraint, {**given, "solutions": solutions})


@dataclass(frozen=True)
class Protection:
    """What the trainer asks of an update: which constraints, and how they are kept (config group projection).

    shared_pass: the constraints' gradients are parts of the update's own, where it has one optimiser step. token_mean:
    the policy's loss is a mean over tokens, not over samples, and so are the objectives of rollouts. method: one of
    `workers.projection.project`.
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
        """What `to_dict` returned; ValueError for an unknown key."""
        constraints = [Constraint.from_dict(each) for each in given["constraints"]]
        return from_fields(Protection, {**given, "constraints": constraints})


@dataclass
class SafeUpdate:
    """One update of the policy: where it started, what must not fall, and what the last projection did.

    start: copies of the trainable shards. constraints: for each of them (S, *shape), ascent gradients at the start.
    gram: their inner products, None when they are not finite. noted: metrics of the constraints. last: without its
    vector. Counted are the optimiser steps that were skipped (with method none: not measured), projected, left with
    (almost) nothing, whose negative epsilon no step could satisfy, and after which the method left a constraint
    violated.

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
        """In gradient space: turn the gradients so that going down them keeps the constraints.

        Whether the optimiser may step: not where something is not finite, for it would move on its momentum.
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
        """Project theta - theta_old and write theta_old + x back; the same bits where the constraints hold already.

        A displacement or a gradient that is not finite is taken back whole, and counted. An optimiser that did nothing
        leaves the parameters as they are, even where a negative epsilon asks for gain.
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
        """Project a step in its own memory; whether it changed."""
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
        self.last = replace(found, step=None)  # the next step has memory of its own
        return changed

    def metrics(self) -> dict[str, float]:
        """Of the constraints and the update's last projection; how many of its steps each of the counts is of."""
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
        """Skills all of whose constraints are without a gradient."""
        assert self.last is not None
        skills = [constraint.skill for constraint in self.protection.constraints]
        live = {skill for skill, norm in zip(skills, self.last.norms.tolist(), strict=True) if norm > 0}
        return len(set(skills) - live)


@dataclass(frozen=True)
class Angles:
    """Inner products (S, S) of an update's constraint gradients, over all parameters and in each type of module."""

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

        Pairs of which one gradient is zero are left out.
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
