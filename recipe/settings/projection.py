"""The settings of skill-safe updates (``projection.*``), and which of them go together."""

import math
from collections.abc import Sequence
from typing import Literal, get_args

from pydantic import Field, model_validator

from recipe.settings.group import Group
from workers.aggregators import Aggregator
from workers.choices import EpsilonKind, Metric, Space
from workers.geometry import WITHOUT_SLACK, Solver

ConstraintSource = Literal["rollouts", "solutions"]
CONSTRAINT_SOURCES: tuple[ConstraintSource, ...] = get_args(ConstraintSource)


class ProjectionSettings(Group):
    """Projection of the policy update into the set that protects other skills (``projection.*``)."""

    method: Literal["off", "measure", Solver, Aggregator]
    protected: list[str] | None = None
    epsilon: float = 0.0
    epsilon_kind: EpsilonKind = "absolute"
    epsilon_of: dict[str, float | dict[ConstraintSource, float]] = Field(default={})
    closed_loop: bool = False
    gain: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    recovery: float = Field(default=0.5, gt=0, le=1)
    verify: bool = False
    verify_corrections: int = Field(default=3, ge=0, le=20)
    verify_tries: int = Field(default=6, ge=0, le=20)
    anchor_solutions: int = Field(default=16, ge=1, le=16)
    held_out: bool = False
    metric: Metric = "euclidean"
    noise: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    agreement: float = Field(default=-1.0, ge=-1, le=1)
    per_module: bool = False
    control: Literal["none", "random_signs"] = "none"
    space: Space = "displacement"
    constraint_source: ConstraintSource | Literal["both"] = "rollouts"
    solutions_per_protected: int = Field(default=48, ge=2)
    average: float = Field(default=0.0, ge=0, lt=1)
    when: Literal["always", "forgetting"] = "always"
    forgetting_margin: float = Field(default=0.05, ge=0, le=1)
    forgetting_accuracy: Literal["validation", "training"] = "validation"
    forgetting_average: float = Field(default=0.8, ge=0, lt=1)
    max_protected: int = Field(default=8, ge=1)

    @property
    def anchored(self) -> bool:
        """Whether protected skills have anchors."""
        return self.closed_loop or self.verify

    @property
    def corrections(self) -> int:
        """Projections of a step that verification refuses; none without a closed loop, whose epsilon they take from."""
        return self.verify_corrections if self.verify and self.closed_loop else 0

    def epsilon_for(self, skill: str, source: str) -> float:
        """The epsilon of a skill's constraint from this source: the most specific of `epsilon_of`, or `epsilon`."""
        epsilon = self.epsilon_of.get(skill, self.epsilon_of.get(source, self.epsilon))
        if isinstance(epsilon, dict):
            rest = self.epsilon_of.get(source, self.epsilon)
            epsilon = epsilon.get(source, self.epsilon if isinstance(rest, dict) else rest)  # type: ignore[call-overload]
        return float(epsilon)

    @property
    def epsilons(self) -> list[float]:
        """All of the configured ones."""
        parts = [each.values() if isinstance(each, dict) else [each] for each in self.epsilon_of.values()]
        return [self.epsilon, *(value for part in parts for value in part)]

    @model_validator(mode="after")
    def _options_have_their_effect(self) -> "ProjectionSettings":
        if self.method == "off":
            return self
        on_solutions = self.constraint_source != "rollouts"
        if self.verify and not on_solutions:
            raise ValueError("verify needs anchor sets of solutions: set constraint_source=solutions or both")
        if self.verify and self.method == "measure":
            raise ValueError("verify changes steps, and projection=measure changes none: use closed_loop to see levels")
        if self.anchored and (self.epsilon_kind != "absolute" or self.space != "displacement"):
            raise ValueError(
                "closed_loop and verify count in units of J: set epsilon_kind=absolute and space=displacement"
            )
        if self.gain and not (self.closed_loop and on_solutions):
            raise ValueError(
                "gain is asked of stored solutions over a run: set closed_loop=true, and constraint_source=solutions "
                "or both"
            )
        if self.anchored and min(self.epsilons) < 0:
            raise ValueError(
                "closed_loop and verify promise that no skill loses more than its epsilon, and one is "
                f"{min(self.epsilons)}: set it to 0 or more; gain is what closed_loop asks of each skill"
            )
        if self.held_out and not (self.anchored and on_solutions):
            raise ValueError(
                "held_out keeps anchor sets of solutions out of the gradient, and there are none: set closed_loop=true "
                "or verify=true, and constraint_source=solutions or both"
            )
        if self.held_out and self.solutions_per_protected <= self.anchor_solutions:
            raise ValueError(
                f"held_out leaves solutions for the gradient where solutions_per_protected "
                f"({self.solutions_per_protected}) is above anchor_solutions ({self.anchor_solutions})"
            )
        if self.anchored and self.when == "forgetting":
            raise ValueError(
                "when=forgetting leaves skills without protection, so closed_loop and verify could promise nothing: "
                "set when=always, or closed_loop=false and verify=false"
            )
        if self.metric == "adam" and self.space != "displacement":
            raise ValueError("metric=adam measures the optimiser's step: set space=displacement")
        if self.noise and self.method not in ("qp", "measure"):
            raise ValueError(f"noise needs method=qp, and the method is {self.method}")
        if self.noise and self.agreement <= (least := max((self.noise**2 - 1) / (self.noise**2 + 1), 0.0)):
            raise ValueError(
                f"noise={self.noise} may leave no step to a constraint whose halves have a cosine of {least:.3g} or "
                f"less: set agreement above {least:.3g}, which leaves such constraints out, or noise=0"
            )
        if self.control != "none" and self.anchored:
            raise ValueError(
                "control=random_signs moves steps in a random direction, which cannot recover lost skill: set "
                "closed_loop=false and verify=false"
            )
        return self

    def check_epsilons(self, protected: Sequence[str]) -> None:
        """Refuse epsilons that are no numbers, that the method cannot use, or of skills that are not protected.

        Raises:
            ValueError: as above.
        """
        if not all(map(math.isfinite, self.epsilons)):
            raise ValueError(f"projection.epsilon must be a finite number, got {self.epsilons}")
        if self.method in WITHOUT_SLACK and (any(self.epsilons) or self.closed_loop):
            raise ValueError(
                f"projection={self.method} does not support slack: set projection.epsilon=0 and "
                "projection.closed_loop=false, or use projection=qp"
            )
        nested = [name for name in CONSTRAINT_SOURCES if isinstance(self.epsilon_of.get(name), dict)]
        if nested:
            raise ValueError(
                f"projection.epsilon_of gives the source {nested[0]} a mapping: give it a number, or name a skill "
                "first, such as {sql: {rollouts: 0.1}}"
            )
        named = [name for name in self.epsilon_of if name not in CONSTRAINT_SOURCES]
        if self.method != "off" and (unknown := sorted(set(named) - set(protected))):
            raise ValueError(
                f"projection.epsilon_of names {unknown}, which are neither protected skills ({list(protected)}) nor "
                f"sources ({', '.join(CONSTRAINT_SOURCES)})"
            )
