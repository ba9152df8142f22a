"""Reward shapes: named sums of parts (result, format, repetition) that score an answer from its properties.

They are the rewards that the NPG-Muse study compares for graph tasks; a run selects one with `shape`.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class AnswerProperties:
    """Properties of an answer that a shape scores.

    feasible: the answer parses and satisfies the constraints of its problem. optimal: it reaches the optimum. quality:
    how close it is to the optimum, in [0, 1]. steepness: exponent of the quality in shapes that depend on the task (2
    for tours). formatted: the response has its thinking part. repeats: the response repeats itself.
    """

    feasible: bool
    optimal: bool
    quality: float
    steepness: int
    formatted: bool
    repeats: bool


RewardPart = Callable[[AnswerProperties], float]


def result(optimal: float, *, worse: float = 0.0, infeasible: float = 0.0, steep: bool = False) -> RewardPart:
    """Pays `optimal`, or `worse` times the quality of a feasible answer, or `infeasible`."""

    def pay(answer: AnswerProperties) -> float:
        if not answer.feasible:
            return infeasible
        return optimal if answer.optimal else worse * answer.quality ** (answer.steepness if steep else 1)

    return pay


def format_bonus(amount: float) -> RewardPart:
    """Pays for a well-formed response, right or wrong."""
    return lambda answer: amount * answer.formatted


def repetition_penalty(amount: float) -> RewardPart:
    """Charges a response that repeats itself, right or wrong."""
    return lambda answer: -amount * answer.repeats


SHAPES: dict[str, tuple[RewardPart, ...]] = {
    "binary": (result(1.0),),
    "binary_format": (result(1.0), format_bonus(0.5)),
    "binary_format_repeat": (result(1.0), format_bonus(0.5), repetition_penalty(0.5)),
    "ratio_quality_format_repeat": (result(1.0, worse=0.5), format_bonus(0.5), repetition_penalty(0.5)),
    "complicated": (
        result(2.0, worse=0.5, infeasible=-1.0, steep=True),
        format_bonus(1.0),
        repetition_penalty(1.0),
    ),
}


def score(answer: AnswerProperties, shape: str) -> float:
    """The reward of an answer under a shape of SHAPES."""
    return sum(part(answer) for part in SHAPES[shape])
