"""The closed loop of skill-safe updates: what a protected skill may still lose, and what a step must not fall below.

J is a skill's level: the mean log-likelihood of its anchor set's answers, in nats per answer, or the verified mean
reward of its samples. J_anchor is its level when protection began. A step may cost, to first order,

    epsilon_t = epsilon - (J_anchor - J_now),

so all steps together may cost epsilon: a skill that fell below its level is pushed back, one above it leaves freedom.
A measured J with standard error e counts as moved only as far as beyond e. The promise is about what happened: after a
step J >= J_anchor - epsilon, its line. A skill that is below its line already has its level before the step as floor.
A loop that asks for gain has a second constraint for each skill, whose slack has -gain in the place of epsilon. The
line stays J_anchor - epsilon: a step that stays above it is kept, whether or not it gains what was asked for. The first
one, which the line is about, has the gradient of the answers that J is measured on, so it knows how to raise J where it
must; the second has that of all stored answers, by which other prompts gain. The two gradients may be opposed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ROUNDING = 1e-6
"""How far (units of J) a level may lie below its line: a set that is measured again is packed in other batches."""


class LevelError(ValueError):
    """A protected skill's level is not finite before a step: no step could keep it."""


@dataclass(frozen=True)
class SkillLevel:
    """A skill's level J and its standard error; nats per answer, or reward."""

    value: float
    error: float = 0.0

    @property
    def known(self) -> bool:
        return math.isfinite(self.value)


def slack(epsilon: float, anchor: SkillLevel, now: SkillLevel) -> float:
    """What a step may still cost, in units of J; epsilon itself where one of the levels is unknown (not finite)."""
    if not (anchor.known and now.known):
        return epsilon
    drift = anchor.value - now.value
    beyond = max(abs(drift) - math.hypot(anchor.error, now.error), 0.0)
    return epsilon - math.copysign(beyond, drift)


def relative_noise(cosine: float) -> float:
    """The error of a gradient over its length, from the cosine of its two halves; 0 where there are no two (NaN).

    With halves of equal length whose errors are independent, |g_1 - g_2|^2 / |g_1 + g_2|^2 = (1 - cos) / (1 + cos).
    """
    if math.isnan(cosine):
        return 0.0
    return math.sqrt((1 - cosine) / max(1 + cosine, 1e-6))


def lines(
    epsilons: Sequence[float], anchors: Sequence[float], start: Sequence[float], names: Sequence[str]
) -> list[float]:
    """What was promised each skill: the least J that a run may leave it with.

    An anchor of NaN (not taken yet), or a level before of NaN (no anchor set), sets no line: -inf.

    Raises:
        LevelError: a level of -inf before the step (`measured_levels`): the parameters are damaged already.
    """
    bounds = []
    for name, epsilon, anchor, before in zip(names, epsilons, anchors, start, strict=True):
        if math.isinf(before) or math.isinf(anchor):
            raise LevelError(
                f"the log-likelihood of the anchor set of {name} is {before} before the step, and was "
                f"{anchor} when protection began: the weights are damaged; resume from an earlier checkpoint"
            )
        bounds.append(-math.inf if math.isnan(anchor) or math.isnan(before) else anchor - epsilon)
    return bounds


def floors(lines: Sequence[float], start: Sequence[float]) -> list[float]:
    """The least J that a step may end with, for each skill: its line, or its level before the step if that is lower."""
    return [min(line, before) if line > -math.inf else line for line, before in zip(lines, start, strict=True)]


def holds(levels: Sequence[float], floors: Sequence[float]) -> bool:
    """Whether every level is at its floor or above; a level that is not a number is not."""
    return all(floor == -math.inf or level >= floor for level, floor in zip(levels, floors, strict=True))


def shortfalls(levels: Sequence[float], floors: Sequence[float]) -> list[float]:
    """How far each level is below its floor, in units of J; 0 at it, above it or without one; NaN of no number."""
    return [
        0.0 if floor == -math.inf or level >= floor else floor - level
        for level, floor in zip(levels, floors, strict=True)
    ]


def largest_share(allowed: Callable[[float], bool], tries: int) -> float:
    """The largest share in [0, 1) of a step that `allowed` accepts among `tries` bisections; 0: the step is undone.

    The whole step (1) is known not to be allowed, none of it (0) is. The last call is not always the share returned.
    """
    low, high = 0.0, 1.0
    for _ in range(tries):
        share = (low + high) / 2
        low, high = (share, high) if allowed(share) else (low, share)
    return low
