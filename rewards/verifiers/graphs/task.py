"""Base of all graph tasks: an answer is one or more bracketed lists, feasible or not, with a value to optimise.

A task is a ground truth model, a `GraphTruth` that computes the value of an answer. The verdict follows from that
value, the optimum, and the run's reward shape. `format` in the verdict refers to the thinking part, as in the NPG-Muse
study.
"""

import math
import re
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from rewards import extraction, registry, shapes
from rewards.guardrails import repeats_itself
from rewards.settings import JudgeSettings
from rewards.verdict import ErrorKind, Verdict

_LIST = re.compile(r"\[([^\[\]]*)\]")

# The items of each bracketed list of an answer, as text.
Lists = list[list[str]]


class GraphTruth(BaseModel, ABC):
    """A problem of a graph task.

    list_count: number of lists in an answer. goal: whether a larger or a smaller value is better. steepness: exponent
    of the quality in the shape `complicated`. best: value of the best known answer; proven: whether it is optimal.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    list_count: ClassVar[int] = 1
    goal: ClassVar[Literal["max", "min"]]
    steepness: ClassVar[int] = 1

    @property
    @abstractmethod
    def best(self) -> float: ...

    @property
    def proven(self) -> bool:
        return True

    @abstractmethod
    def value(self, answer: Lists) -> float | None:
        """The value of an answer, in the unit of `best`; None if it violates a constraint of the task."""

    def quality(self, value: float) -> float:
        """How close a value is to the best, in [0, 1].

        Raises ValueError for a value that beats a proven optimum: the row is wrong, and its answers must not be scored.
        """
        if math.isclose(value, self.best, rel_tol=1e-9):
            return 1.0
        if (value > self.best) == (self.goal == "max"):
            if self.proven:
                raise ValueError(f"an answer has the value {value:g}, better than the optimum {self.best:g} of its row")
            return 1.0
        smaller, larger = sorted((value, self.best))
        return smaller / larger


class HardTruth(GraphTruth):
    """A problem whose row holds the optimum, because it is hard to compute; `optimal`: whether it is proven."""

    optimum: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    optimal: bool = True

    @property
    def best(self) -> float:
        return self.optimum

    @property
    def proven(self) -> bool:
        return self.optimal


def parse_lists(text: str, count: int) -> Lists | None:
    """The last `count` bracketed lists of a text, in order; items are split at commas, quotes around them are dropped.

    None if there are fewer.
    """
    lists = _LIST.findall(text)
    if len(lists) < count:
        return None
    return [_items(inside) for inside in lists[-count:]]


def _items(inside: str) -> list[str]:
    return [item.strip(" \t\r\n'\"") for item in inside.split(",")] if inside.strip() else []


def verdict_of(response: str, truth: GraphTruth, settings: JudgeSettings) -> Verdict:
    """Judge a response.

    The error is `extract` without lists after the thinking part, `infeasible` if a constraint is violated, and
    `wrong_answer` for a feasible answer that is not optimal.
    """
    text = extraction.after_thinking(response, settings.think_opener)
    answer = None if text is None else parse_lists(text, truth.list_count)
    value = None if answer is None else truth.value(answer)
    # If more is better, the empty list is always feasible; it must not escape the penalty of a shape for no answer.
    if value == 0 and truth.goal == "max" and truth.best > 0:
        value = None
    quality = 0.0 if value is None else truth.quality(value)
    feasible, optimal = value is not None, quality == 1.0
    error: ErrorKind = "none" if optimal else "wrong_answer" if feasible else "infeasible"
    if answer is None:
        error = "extract"
    formatted = extraction.is_well_formed(response, settings.think_opener)
    seen = shapes.AnswerProperties(feasible, optimal, quality, truth.steepness, formatted, repeats_itself(response))
    return Verdict(
        score=shapes.score(seen, settings.shape),
        correct=optimal,
        well_formed=formatted,
        error=error,
        pass_ratio=quality,
        feasible=feasible,
        quality=quality,
    )


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Judge a response to a problem of any graph task."""
    assert isinstance(truth, GraphTruth)
    return verdict_of(response, truth, settings)


def register(name: str, truth: type[GraphTruth]) -> None:
    """Register a graph task as a verifier."""
    registry.register(registry.Verifier(name, truth, judge))
