"""What the trainer asks of an update: constraints and a penalty. A batch carries them as dictionaries of plain values.

Apart from the torch code that acts on them, so that the trainer's side can be planned and checked without torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from workers.choices import OF_GAIN, Metric, PenaltyKind
from workers.solution_store import StoredSolution, plain_solutions

# The field of a batch in which the trainer sends a Protection, as `Protection.to_dict`.
PROTECTION = "skillcredit_protection"
# The field of a batch in which the trainer sends a WantedPenalty, as `WantedPenalty.to_dict`.
PENALTY = "skillcredit_penalty"

T = TypeVar("T")


@dataclass(frozen=True)
class Constraint:
    """One requested constraint: its name in metrics, the skill, stored solutions (None: the batch's own samples).

    epsilon: None: that of the protection. anchored: the first so many solutions are its anchor set. anchor, level: the
    level when protection began, and now (both None: not known yet). With solutions the worker measures the level.
    error: standard error of (level - anchor). unit: units of the level in one unit of the gradient's objective.
    gain: what a closed loop asks it to gain over the run (units of J), in the place of its epsilon. follows: the
    constraint whose anchor and level it goes by, and whose solutions are in its gradient, too; None: its own.
    """

    name: str
    skill: int
    solutions: Sequence[StoredSolution] | None = None
    epsilon: float | None = None
    anchored: int = 0
    anchor: float | None = None
    level: float | None = None
    error: float = 0.0
    unit: float = 1.0
    gain: float = 0.0
    follows: str | None = None

    @property
    def exact(self) -> bool:
        """Whether its gradient is that of its level, without the error of a sample: it has the anchor set alone."""
        return 0 < self.anchored == len(self.solutions or ())

    @property
    def anchor_set(self) -> Sequence[StoredSolution]:
        return [] if self.solutions is None else self.solutions[: self.anchored]

    def asking(self, gain: float, solutions: Sequence[StoredSolution]) -> "Constraint":
        """A constraint that asks this one's skill for gain, from its solutions and these."""
        return Constraint(self.name + OF_GAIN, self.skill, solutions, self.epsilon, gain=gain, follows=self.name)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a batch."""
        solutions = None if self.solutions is None else plain_solutions(self.solutions)
        return _to_fields(self) | {"solutions": solutions}

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> "Constraint":
        """Inverse of `to_dict`; ValueError for an unknown key."""
        stored = given.get("solutions")
        solutions = None if stored is None else [StoredSolution(*each) for each in stored]
        return _from_fields(Constraint, {**given, "solutions": solutions})


@dataclass(frozen=True)
class Protection:
    """The trainer's request for an update: which constraints, and how to enforce them (config group projection).

    shared_pass: take the constraints' gradients from the update's own pass, if it has one optimiser step. token_mean:
    the policy's loss is a mean over tokens, not over samples, and so are the objectives of rollouts. method: one of
    `workers.geometry.METHODS`. closed_loop: epsilon is what a skill may lose over the run, not per step. recovery:
    bound on the gain that a closed loop asks for, a cosine. tries, corrections: bisections of a step that its anchor
    sets refuse, and projections before them; tries None: steps are not verified. metric: that of the nearest step.
    noise, agreement: standard errors of a gradient that a step must clear, and the least split-half cosine of a
    constraint that counts. held_out: the gradients of solutions leave the anchor sets out; where gain is asked for,
    only its gradient does. per_module: one constraint for each type of module. control: seed of random signs on the
    correction (a control); None: none.
    """

    constraints: Sequence[Constraint]
    method: str
    epsilon: float
    epsilon_kind: str
    space: str = "displacement"
    average: float = 0.0
    shared_pass: bool = False
    token_mean: bool = False
    closed_loop: bool = False
    recovery: float = 0.5
    tries: int | None = None
    corrections: int = 0
    metric: Metric = "euclidean"
    noise: float = 0.0
    agreement: float = -1.0
    held_out: bool = False
    per_module: bool = False
    control: int | None = None

    @property
    def names(self) -> list[str]:
        return [constraint.name for constraint in self.constraints]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a batch."""
        return _to_fields(self) | {"constraints": [each.to_dict() for each in self.constraints]}

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> "Protection":
        """Inverse of `to_dict`; ValueError for an unknown key."""
        constraints = [Constraint.from_dict(each) for each in given["constraints"]]
        return _from_fields(Protection, {**given, "constraints": constraints})


@dataclass(frozen=True)
class WantedPenalty:
    """The penalty that the trainer asks for.

    kind: l2, ewc or rehearsal. stage: number of the update's stage. solutions: those of the previous stage (ewc), or of
    all earlier skills (rehearsal).
    """

    kind: PenaltyKind
    strength: float
    stage: int
    solutions: Sequence[StoredSolution] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a batch."""
        return _to_fields(self) | {"solutions": plain_solutions(self.solutions)}

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> "WantedPenalty":
        """Inverse of `to_dict`; ValueError for an unknown key."""
        solutions = [StoredSolution(*each) for each in given.get("solutions", ())]
        return _from_fields(WantedPenalty, {**given, "solutions": solutions})


def _to_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name; the values are those of the instance, not copies."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _from_fields(kind: type[T], given: Mapping[str, Any]) -> T:
    """An instance of a dataclass from its fields.

    Raises:
        ValueError: a name that is not a field, with the valid ones.
        TypeError: a field without a default is missing.
    """
    valid = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    if unknown := sorted(given.keys() - set(valid)):
        raise ValueError(f"{kind.__name__} has no field {', '.join(unknown)}; valid: {', '.join(valid)}")
    return kind(**given)
