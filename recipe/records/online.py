"""Accuracy of the updates' own samples, and comparisons of it between arms in pairs of runs with the same seed.

The samples of update k are answers of the policy after k - 1 updates, so those of update 1 do not depend on the arm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_1samp

from recipe.records.intervals import Interval, t_interval
from recipe.records.learning_speed import generated_tokens, samples_of, sandbox_seconds
from recipe.records.run_directory import RunDirectory

FIRST = 2  # the first update whose samples depend on the arm


@dataclass(frozen=True)
class Goal:
    """An accuracy to reach, a share of 1, by the mean over the last `window` updates (at first: over all so far).

    A single update of few samples passes any accuracy by chance, the more often the longer a run takes.
    """

    accuracy: float
    window: int = 1

    def __post_init__(self) -> None:
        if not (0 < self.accuracy <= 1 and self.window >= 1):
            raise ValueError(f"need an accuracy in (0, 1] and window >= 1, got {self.accuracy:g} and {self.window}")

    @property
    def name(self) -> str:
        """In a table's head."""
        return f"{100 * self.accuracy:g}%" + (f", mean of {self.window}" if self.window > 1 else "")


@dataclass(frozen=True)
class ArmContrast:
    """Paired difference of two arms in online accuracy, a share of 1, and ratio of their updates to an accuracy.

    p: two-sided, of a paired t-test; None for a single pair. holm: p adjusted for all contrasts of the report, with
    pairs of runs or without: a study that is not finished is no smaller one. ratio:
    geometric mean of the pairs' ratios with a t interval of the logarithms; None if a run started at the accuracy.
    """

    arm: str
    against: str
    pairs: int
    gain: Interval
    p: float | None
    holm: float | None
    ratio: Interval | None


def online_accuracy(run: RunDirectory) -> list[float]:
    """The share of right samples at each update.

    Raises:
        ValueError: an update lacks it, or the run has fewer than two updates.
    """
    updates = [row for row in run.metrics() if row["step"] > 0]
    if missing := [int(row["step"]) for row in updates if "reward/acc" not in row]:
        raise ValueError(f"{run.path} has no reward/acc at update {missing[0]}")
    if len(updates) < FIRST:
        raise ValueError(f"{run.path} has {len(updates)} updates; {FIRST} are needed")
    return [row["reward/acc"] for row in updates]


def update_costs(run: RunDirectory) -> dict[str, list[float]]:
    """What each update cost, by unit; NaN where it was not measured."""
    samples = samples_of(run.read_config())
    updates = [row for row in run.metrics() if row["step"] > 0]
    return {
        "k tokens": [generated_tokens(row, samples) / 1000 for row in updates],
        "sandbox seconds": [sandbox_seconds(row) for row in updates],
        "wall seconds": [row.get("timing_s/step", math.nan) for row in updates],
    }


def spent_in(costs: Sequence[float], updates: float) -> float:
    """The cost of the first updates, the last one in part."""
    return float(np.interp(updates, range(len(costs) + 1), np.concatenate([[0.0], np.cumsum(costs)])))


def mean_online(accuracy: Sequence[float]) -> float:
    """Mean over updates 2 to the last."""
    return float(np.mean(accuracy[FIRST - 1 :]))


def updates_to(accuracy: Sequence[float], goal: Goal) -> tuple[float, bool]:
    """Updates until the samples first reach the goal, interpolated, and whether they do.

    A run that never does counts with all its updates, and none is left out: the mean over runs is then the restricted
    mean, that of min(updates, last) (Royston and Parmar 2013).
    """
    ends = range(1, len(accuracy) + 1)
    # Rounded: the mean of equal values may lie below them.
    means = [round(float(np.mean(accuracy[max(0, end - goal.window) : end])), 12) for end in ends]
    above = [index for index, value in enumerate(means) if value >= goal.accuracy]
    if not above:
        return float(len(means)), False
    index = above[0]
    if index == 0:
        return 0.0, True
    low, high = means[index - 1], means[index]
    return index - 1 + (goal.accuracy - low) / (high - low), True


def paired_p(differences: Sequence[float]) -> float | None:
    """Two-sided p of a t-test that their mean is 0; None for a single difference.

    Differences are rounded to 12 decimals: rounding errors of equal means would be significant.
    """
    if len(differences) < 2:
        return None
    rounded = np.round(differences, 12)
    if (rounded == rounded[0]).all():
        return 1.0 if rounded[0] == 0 else 0.0
    return float(ttest_1samp(rounded, 0.0).pvalue)


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float]) -> Interval | None:
    """Geometric mean of the pairs' ratios; None if a value is 0."""
    if min(*numerators, *denominators) <= 0:
        return None
    logarithms = t_interval(np.log(np.asarray(numerators) / np.asarray(denominators)))
    if logarithms.low is None or logarithms.high is None:
        return Interval(math.exp(logarithms.estimate))
    return Interval(*map(math.exp, (logarithms.estimate, logarithms.low, logarithms.high)))


def holm(values: Sequence[float | None], family: int | None = None) -> list[float | None]:
    """p-values adjusted for their number, or the family's (Holm 1979); None stays None and does not count."""
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    size, largest = family or len(known), 0.0
    for rank, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, (size - rank) * value))
        adjusted[place] = largest
    return adjusted
