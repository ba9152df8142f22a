"""Keep an update inside the set that protects skills: project the displacement of the trainable parameters.

The guarantee is first-order and holds for what the optimiser really did: after every optimiser step the whole
displacement since the start of the update is projected and written back (docs/reference/skill_safe.md).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from workers.displacement import displacement_norm
from workers.projection import NotFiniteError, Projection, merged, project
from workers.safety.controls import resigned
from workers.safety.levels import SkillLevel, lines, relative_noise, slack
from workers.safety.verification import Verification
from workers.update_request import Protection


@dataclass
class SafeUpdate:
    """One update of the policy: its start, its constraints, and the result of the last projection.

    start: copies of the trainable shards. constraints: for each of them (S, *shape), ascent gradients at the start.
    modules: the type of module of each shard, for constraints per module. signs: one sign per element (the control).
    gram: inner products of the constraints, None if they are not finite. of_modules: those of each type of module.
    inverse_metric: diagonal of H^-1 for each shard, as of the update's first step; its inner products serve all steps.
    levels: of each constraint at the start, None where unknown. agreements: split-half cosines. noted: metrics of the
    constraints. last: the last projection, without its vector. verification: None if steps are not verified. asked:
    what verification found missing of a step that it then accepted, in units of J: later projections of this update
    demand it in addition.

    Counts of optimiser steps: skipped (with method none: not measured), projected, stalled (almost nothing was left),
    infeasible (no step could satisfy a negative epsilon), violated (the method left a constraint violated).

    Memory: start, constraints and one step, S + 2 copies of the trainable shards; Adam's metric is one more, random
    signs one byte for each element and another step, verification the step as the optimiser proposed it.
    """

    protection: Protection
    constraints: list[Tensor]
    start: list[Tensor]
    group: Any = None
    modules: Sequence[str] = ()
    signs: Sequence[Tensor] | None = None
    inverse_metric: Sequence[Tensor] | None = None
    gram: Tensor | None = None
    of_modules: Mapping[str, Tensor] = field(default_factory=dict)
    levels: list[float | None] = field(default_factory=list)
    agreements: Sequence[float] = ()
    noted: dict[str, float] = field(default_factory=dict)
    last: Projection | None = None
    verification: Verification | None = None
    asked: list[float] = field(default_factory=list)
    skipped: int = 0
    projected: int = 0
    stalled: int = 0
    infeasible: int = 0
    violated: int = 0
    _metric_grams: dict[str, Tensor] = field(default_factory=dict)
    _proposed: list[Tensor] | None = None  # the optimiser's displacement, where it may be projected again
    _asked_before: list[float] = field(default_factory=list)  # before the last step
    _counts: tuple[int, int] = (0, 0)  # before the last step: projected, stalled

    def __post_init__(self) -> None:
        if not self.levels:
            self.levels = [each.level for each in self.protection.constraints]
        if not self.asked:
            self.asked = [0.0] * len(self.protection.constraints)
        self._asked_before = self.asked

    @property
    def anchors(self) -> list[float | None]:
        """Each constraint's anchor: where protection begins with this update, the level at its start."""
        leaders = [self.protection.constraints[leader] for leader in self._leaders]
        pairs = zip(leaders, self.levels, strict=True)
        return [each.anchor if each.anchor is not None else level for each, level in pairs]

    @property
    def _leaders(self) -> list[int]:
        """Of each constraint: the number of the one whose level it goes by, mostly its own."""
        names = self.protection.names
        return [
            number if each.follows is None else names.index(each.follows)
            for number, each in enumerate(self.protection.constraints)
        ]

    @property
    def budgets(self) -> list[float]:
        """Each constraint's epsilon as it is configured: what a skill may lose."""
        default = self.protection.epsilon
        return [default if each.epsilon is None else each.epsilon for each in self.protection.constraints]

    @property
    def slacks(self) -> list[float]:
        """What this update may cost each skill: its epsilon, in a closed loop what is left of it (in units of J).

        Of a constraint that asks for gain: how far the skill is above what is asked for, and below 0 what it lacks.
        """
        if not self.protection.closed_loop:
            return self.budgets
        rows = zip(self.budgets, self.anchors, self.levels, self.protection.constraints, strict=True)
        return [
            slack(-each.gain if each.gain else budget, _level(anchor), _level(now, each.error))
            for budget, anchor, now, each in rows
        ]

    @property
    def left_out(self) -> list[bool]:
        """Constraints whose two halves agree too little to count; an exact one, or without two halves, counts."""
        least = self.protection.agreement
        rows = zip(self.agreements, self.protection.constraints, strict=False)
        return [not math.isnan(cosine) and cosine < least and not each.exact for cosine, each in rows]

    @property
    def epsilons(self) -> list[float]:
        """Each constraint's epsilon in units of its gradient's objective; infinite for one that is left out."""
        epsilons = [
            (left - more) / each.unit if self.protection.closed_loop else left - more
            for left, more, each in zip(self.slacks, self.asked, self.protection.constraints, strict=True)
        ]
        out = self.left_out or [False] * len(epsilons)
        return [math.inf if leave else epsilon for leave, epsilon in zip(out, epsilons, strict=True)]

    @property
    def noises(self) -> list[float]:
        """Each gradient's error over its length, times the configured number of standard errors; 0 of an exact one."""
        rows = zip(self.agreements, self.protection.constraints, strict=False)
        return [0.0 if each.exact else self.protection.noise * relative_noise(cosine) for cosine, each in rows]

    def join_followed(self) -> None:
        """Give a constraint that follows another the mean gradient over both's solutions, in place of its own alone.

        Where anchor sets are held out it stays its own, but without any it has the other's.
        """
        constraints = self.protection.constraints
        for row, leader in enumerate(self._leaders):
            if row != leader and not (self.protection.held_out and constraints[row].solutions):
                own, theirs = (len(constraints[each].solutions or ()) for each in (row, leader))
                for block in self.constraints:
                    block[row] = torch.lerp(block[leader], block[row], own / max(own + theirs, 1))

    def record_levels(self, levels: Sequence[float]) -> None:
        """Take the levels of the anchor sets that are measured (NaN: none) and not known yet."""
        known = [
            now if old is None and not math.isnan(now) else old for old, now in zip(self.levels, levels, strict=True)
        ]
        self.levels = [known[leader] for leader in self._leaders]

    @property
    def accepted(self) -> dict[str, float]:
        """Levels of the anchor sets at the parameters that verification accepted last, by the constraint's name."""
        if self.verification is None:
            return {}
        return dict(zip(self.protection.names, self.verification.levels, strict=True))

    def verify(self, levels: list[float], tries: int) -> None:
        """Verify this update's steps. levels: of the anchor sets at its start, NaN for a constraint without one."""
        anchors = [math.nan if anchor is None else anchor for anchor in self.anchors]
        promised = lines(self.budgets, anchors, levels, self.protection.names)
        self.verification = Verification(promised, levels, tries, self.protection.corrections)

    def before_step(self, gradients: Sequence[Tensor]) -> bool:
        """In gradient space: change the gradients so that descending them satisfies the constraints.

        Returns whether the optimiser may step: not if something is not finite, for its momentum would still move it.
        """
        if self.protection.space != "gradient":
            return True
        skipped = self.skipped
        step = [(-gradient).contiguous() for gradient in gradients]
        if self._project(step, None):
            for gradient, move in zip(gradients, step, strict=True):
                gradient.copy_(-move)
        return self.protection.method == "none" or self.skipped == skipped

    def after_step(self, shards: Sequence[Tensor]) -> None:
        """Project theta - theta_old and write theta_old + x back; the same bits if the constraints hold already.

        If the displacement or a gradient is not finite, the whole displacement is undone, and counted. If the optimiser
        did nothing, the parameters stay as they are, even if a negative epsilon asks for gain.
        """
        self._proposed = None
        if self.verification is not None and self.verification.kept < 1:
            self.asked = self._asked_before  # it did not help
        self._asked_before = self.asked
        if self.protection.space != "displacement":
            return
        if min(self.epsilons) < 0 and displacement_norm(self.start, shards, self.group) == 0:
            return
        step = [(shard - old).contiguous() for shard, old in zip(shards, self.start, strict=True)]
        if self._correctable:
            self._proposed = [part.clone() for part in step]
        self._counts, skipped = (self.projected, self.stalled), self.skipped
        if self._project(step, self.inverse_metric):
            self._write(shards, step)
        if self.skipped > skipped:
            self._proposed = None

    def correct(self, shards: Sequence[Tensor], missing: Sequence[float]) -> bool:
        """Project the optimiser's last displacement again, with gains that its projection lacked as further demands.

        missing: of each constraint, in units of J. Metrics are then those of this projection, as are the counts of
        projected and stalled steps; the others are about what was configured. Returns False where the parameters stay
        as they are: the step was not projected in a closed loop, or no demand changes it (`recovery` bounds them).
        """
        if self._proposed is None or self.last is None:
            return False
        earlier, counts = self.last, (self.infeasible, self.violated)
        self.asked = [more + lacked for more, lacked in zip(self.asked, missing, strict=True)]
        step = [part.clone() for part in self._proposed]
        self.projected, self.stalled = self._counts
        self._project(step, self.inverse_metric)
        self.infeasible, self.violated = counts
        if torch.equal(earlier.multipliers, self.last.multipliers) and torch.equal(earlier.change, self.last.change):
            return False
        self._write(shards, step)
        return True

    @property
    def _correctable(self) -> bool:
        verified = self.verification is not None and self.verification.corrections > 0
        return verified and self.protection.closed_loop

    def _write(self, shards: Sequence[Tensor], step: Sequence[Tensor]) -> None:
        for shard, old, move in zip(shards, self.start, step, strict=True):
            shard.copy_(old + move)

    def _project(self, step: list[Tensor], inverse_metric: Sequence[Tensor] | None) -> bool:
        """Project a step in place; return whether it changed."""
        whole = [part.clone() for part in step] if self.signs is not None else step
        try:
            projection = self._projection(step, inverse_metric)
        except NotFiniteError:
            self.skipped += 1
            if self.protection.method == "none":
                return False
            for part in step:
                part.zero_()
            return True
        changed = projection.kept != 1 or bool(projection.multipliers.any())
        if self.signs is not None and changed:
            for part, old, signs in zip(step, whole, self.signs, strict=True):
                part.sub_(old).mul_(signs).add_(old)
            projection = resigned(projection, self.constraints, step, self.group)
        self.projected += changed
        self.stalled += projection.stalled
        self.infeasible += not projection.feasible
        self.violated += projection.missed
        self.last = replace(projection, step=None)  # the next step allocates its own memory
        return changed

    def _projection(self, step: list[Tensor], inverse_metric: Sequence[Tensor] | None) -> Projection:
        """The projection of the whole step, or of each type of module apart."""
        if not self.protection.per_module:
            return self._nearest("", step, self.constraints, self.epsilons, inverse_metric)
        parts = []
        for module in dict.fromkeys(self.modules):
            indices = [index for index, name in enumerate(self.modules) if name == module]
            inverse = None if inverse_metric is None else [inverse_metric[index] for index in indices]
            rows = [self.constraints[index] for index in indices]
            parts.append(self._nearest(module, [step[index] for index in indices], rows, self._shares(module), inverse))
        return merged(parts)

    def _shares(self, module: str) -> list[float]:
        """A module's part of each epsilon: its part of the gradient's square, so that the parts add up to epsilon."""
        if self.protection.epsilon_kind == "cosine" or self.gram is None:
            return self.epsilons
        part, whole = self.of_modules[module].diag().tolist(), self.gram.diag().tolist()
        return [
            epsilon * own / total if total > 0 and math.isfinite(epsilon) else epsilon
            for epsilon, own, total in zip(self.epsilons, part, whole, strict=True)
        ]

    def _nearest(
        self,
        module: str,
        step: list[Tensor],
        constraints: list[Tensor],
        epsilons: list[float],
        inverse_metric: Sequence[Tensor] | None,
    ) -> Projection:
        """The projection of a type of module's part of the step; "": the whole."""
        protection = self.protection
        known = self.of_modules.get(module) if module else self.gram
        projection = project(
            step,
            constraints,
            epsilon=epsilons,
            method=protection.method,
            epsilon_kind=protection.epsilon_kind,
            gram=known if inverse_metric is None else self._metric_grams.get(module),
            process_group=self.group,
            in_place=True,
            inverse_metric=inverse_metric,
            noise=self.noises if protection.noise else None,
            recovery=protection.recovery if protection.closed_loop else math.inf,
        )
        if inverse_metric is not None:
            self._metric_grams[module] = projection.gram
        return projection

    def metrics(self) -> dict[str, float]:
        """Metrics of the constraints and of the update's last projection, and the counts of its steps."""
        numbers = self.noted | {
            "projection/projected_steps": float(self.projected),
            "projection/skipped_steps": float(self.skipped),
        }
        if self.last is None:
            return numbers | self._promise()
        kept = 1.0 if self.verification is None else self.verification.kept  # of the last step, what remains
        numbers |= {
            "projection/moved": kept * self.last.moved,
            "projection/stalled": float(self.stalled),
            "projection/infeasible": float(self.infeasible),
            "projection/violated_steps": float(self.violated),
            "projection/unprotected_skills": float(self._unprotected()),
        }
        for index, name in enumerate(self.protection.names):
            numbers[f"projection/multiplier/{name}"] = float(self.last.multipliers[index])
            numbers[f"projection/cosine/{name}"] = float(self.last.cosines[index])
            numbers[f"projection/gradient_norm/{name}"] = float(self.last.norms[index])
            numbers[f"projection/predicted_change/{name}"] = kept * float(self.last.change[index])
            if self.protection.constraints[index].follows is None:
                numbers[f"projection/unprotected/{name}"] = float(self.last.norms[index] == 0)
        return numbers | self._promise()

    def _promise(self) -> dict[str, float]:
        """Metrics of levels, of constraints that are left out, and of verified steps; none where they are off."""
        protection, names = self.protection, self.protection.names
        numbers: dict[str, float] = {}
        if protection.agreement > -1:
            numbers |= {
                f"projection/left_out/{name}": float(out) for name, out in zip(names, self.left_out, strict=True)
            }
        if protection.closed_loop or self.verification:
            rows = zip(protection.constraints, self.levels, self.anchors, self.slacks, strict=True)
            for each, level, anchor, left in rows:
                if level is not None and anchor is not None:
                    values = {"slack": left}
                    if each.follows is None:
                        values |= {"level": level, "anchor": anchor}
                    numbers |= {f"projection/{key}/{each.name}": value for key, value in values.items()}
        if self.verification:
            numbers |= self.verification.metrics(names)
        return numbers

    def _unprotected(self) -> int:
        """Number of skills whose constraints all have a gradient of zero."""
        assert self.last is not None
        skills = [constraint.skill for constraint in self.protection.constraints]
        live = {skill for skill, norm in zip(skills, self.last.norms.tolist(), strict=True) if norm > 0}
        return len(set(skills) - live)


def _level(value: float | None, error: float = 0.0) -> SkillLevel:
    return SkillLevel(math.nan if value is None else value, error)
