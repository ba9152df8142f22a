"""Settings of the estimation of credits (config group `credit`)."""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from rewards.counterfactual.interventions import Kind
from rewards.counterfactual.segments import UNITS, Unit

Method = Literal[Kind, "shapley", "resample", "returns"]
METHODS: tuple[Method, ...] = get_args(Method)
# Methods that spend the whole budget themselves.
ALONE: tuple[Method, ...] = ("shapley", "resample", "returns")
# Methods that replay single steps, and so choose among them.
BY_STEP: tuple[Method, ...] = ("delete", "replace")
Choice = Literal["longest", "uniform", "informative"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
Prefixes = Literal["even", "effects", "adaptive"]
PREFIXES: tuple[Prefixes, ...] = get_args(Prefixes)


@dataclass(frozen=True)
class Plan:
    """Settings of the estimation of credits (config group `credit`).

    methods: interventions that share the budget, or `shapley`, `resample` or `returns` alone. unit, text_steps:
    definition of a step (`segments.segment`). budget: replays per trajectory, K >= 1; the check for flakiness does not
    count.
    choice: which steps `delete` and `replace` replay if there are more than their budget: the longest (of equal ones a
        draw, the same for all siblings), drawn uniformly, or the most informative (`siblings.informative`).
    check_flaky: run the solution itself once more; if the score differs, no step gets a credit. A solution whose layout
        replays change is run in the replays' layout, with or without this.
    continuations: for `resample`, continuations averaged for the value of each prefix; each counts as one replay.
    prefixes: for `resample`, which prefixes get a value: at even distances, between steps with the largest direct
        effects, or where these do not explain the change of the value (`methods`).
    discount: for `returns`, the factor by which a reward loses worth per step before it.
    coverage: statements that no test executes have credit 0 without a replay (`coverage`); measured in the run that
        finds flaky programs, which takes place in any case.
    all_or_nothing: a solution and its replays count 1 if they pass every test, else 0, and credits know no single
        tests; otherwise the share of tests. Siblings stay compared by their shares.
    align: look for the same step under other names in the siblings' solutions (`alignment`), also where the replays do
        not depend on siblings; each sample then waits for its group.
    """

    methods: tuple[Method, ...] = ("delete",)
    unit: Unit = "statement"
    text_steps: bool = False
    budget: int = 4
    choice: Choice = "longest"
    check_flaky: bool = True
    continuations: int = 1
    prefixes: Prefixes = "even"
    discount: float = 1.0
    coverage: bool = False
    all_or_nothing: bool = False
    align: bool = False

    @classmethod
    def of_config(cls, credit: Any) -> "Plan":
        """The plan of the config group `credit`, composed by Hydra or typed. ValueError if it is invalid."""
        chosen = {field.name: getattr(credit, field.name) for field in fields(cls)}
        return cls(**chosen | {"methods": tuple(credit.methods)})

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"credit.budget is {self.budget}: set at least 1 replay per trajectory, or credit=off")
        for value, valid in (
            *((method, METHODS) for method in self.methods),
            *((self.unit, UNITS), (self.choice, CHOICES), (self.prefixes, PREFIXES)),
        ):
            if value not in valid:
                raise ValueError(f"unknown '{value}'; valid: {', '.join(valid)}")
        self._check_methods()
        if not 1 <= self.continuations <= self.budget:
            raise ValueError(f"credit.continuations is {self.continuations}: set 1 to {self.budget}, the credit.budget")
        if not 0.0 < self.discount <= 1.0:
            raise ValueError(f"credit.discount is {self.discount}: set more than 0, at most 1")

    def _check_methods(self) -> None:
        names = ", ".join(self.methods)
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise ValueError(f"credit.methods is [{names}]: name at least one method, and each once")
        if len(self.methods) > 1 and not set(self.methods).isdisjoint(ALONE):
            raise ValueError(f"credit.methods is [{names}]: {' and '.join(ALONE)} must be the only method")
        if "resample" in self.methods and self.unit == "turn":
            raise ValueError(
                "credit.methods=[resample] does not support unit=turn: use methods=[truncate] or [shapley]"
            )
        if self.unit == "token" and (self.methods != ("resample",) or self.prefixes != "even"):
            raise ValueError(
                "credit.unit=token needs values of prefixes at even distances: set methods=[resample] and prefixes=even"
            )
        deletes = not set(self.methods).isdisjoint(BY_STEP) or self.prefixes != "even"
        if self.coverage and not (deletes and self.unit == "statement"):
            raise ValueError(
                "credit.coverage spares replays of single statements: set unit=statement and methods with delete or "
                "replace, or coverage=false"
            )
        if len(self.methods) > self.budget:
            raise ValueError(f"credit.methods is [{names}]: they share budget={self.budget}, so raise it or drop some")

    @property
    def needs_siblings(self) -> bool:
        """Whether replays or keys depend on what the siblings wrote."""
        return "replace" in self.methods or self.choice == "informative" or self.align
