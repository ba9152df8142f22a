"""Accuracy of the updates' own samples, and comparisons of it between arms in pairs of runs with the same seed.

The samples of update k are answers of the policy after k - 1 updates, so those of update 1 do not depend on the arm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy

from recipe.records.intervals import Interval, t_interval
from recipe.records.learning_speed import generated_tokens, samples_of, sandbox_seconds
from recipe.records.run_directory import STEP_TIME, RunDirectory
from workers.skill_metrics import OVER_SKILLS

FIRST = 2  # the first update whose samples depend on the arm


@dataclass(frozen=True)
class Goal:
    """An accuracy to reach, a share of 1, by the mean over the last `window` updates, or blocks of so many `samples`.

    A single update of few samples passes any accuracy by chance, the more often the longer a run takes. last: the last
    update (or block) of a run's own mean accuracy, where some runs are longer; None for all of a run.
    """

    accuracy: float
    window: int = 1
    samples: int = 0
    last: int | None = None

    def __post_init__(self) -> None:
        if not (0 < self.accuracy <= 1 and self.window >= 1 and self.samples >= 0):
            raise ValueError(
                "need an accuracy in (0, 1], window >= 1 and samples >= 0, "
                f"got {self.accuracy:g}, {self.window} and {self.samples}"
            )

    @property
    def unit(self) -> str:
        """What is counted, in the singular."""
        return f"block of {self.samples} samples" if self.samples else "update"

    @property
    def units(self) -> str:
        """What is counted."""
        return "blocks" if self.samples else "updates"

    @property
    def span(self) -> str:
        """What a run's own accuracy is the mean of."""
        return f"{self.units} {FIRST} to {self.last or 'the last'}"

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


def online_accuracy(run: RunDirectory, samples: int = 0) -> list[float]:
    """The share of right samples at each update; with `samples`, in each block of updates that hold so many.

    Raises:
        ValueError: an update lacks it, the run has fewer than two updates, or blocks do not consist of whole updates.
    """
    updates = [row for row in run.metrics() if row["step"] > 0]
    if missing := [int(row["step"]) for row in updates if "reward/acc" not in row]:
        raise ValueError(f"{run.path} has no reward/acc at update {missing[0]}")
    size = _updates_of(run, len(updates), samples)
    if len(updates) < FIRST * size:
        raise ValueError(f"{run.path} has {len(updates)} updates; {FIRST * size} are needed")
    blocks = np.reshape([row["reward/acc"] for row in updates], (-1, size))
    means: list[float] = blocks.mean(1).tolist()
    return means


def _updates_of(run: RunDirectory, updates: int, samples: int) -> int:
    """Updates in a block of so many samples; 1 for `samples` 0."""
    if not samples:
        return 1
    each = _samples_of_update(run)
    if samples % each or updates % (samples // each):
        raise ValueError(f"{run.path}: {updates} updates of {each} samples are no whole blocks of {samples} samples")
    return samples // each


@cache
def _samples_of_update(run: RunDirectory) -> int:
    return samples_of(run.read_config())  # which takes a sixth of a second


def skill_accuracy(run: RunDirectory) -> dict[str, float]:
    """Mean accuracy of the samples of each skill over updates 2 to the last that have some; empty for one skill."""
    values: dict[str, list[float]] = {}
    for row in run.metrics():
        for key, value in row.items() if row["step"] >= FIRST else ():
            parts = key.split("/")
            if parts[0] == "train_skill" and parts[2:] == ["accuracy"] and parts[1] not in OVER_SKILLS:
                values.setdefault(parts[1], []).append(value)
    return {skill: float(np.mean(own)) for skill, own in sorted(values.items())} if len(values) > 1 else {}


def update_costs(run: RunDirectory, samples: int = 0) -> dict[str, list[float]]:
    """What each update cost, by unit, or each block of so many samples; NaN where it was not measured."""
    each = _samples_of_update(run)
    updates = [row for row in run.metrics() if row["step"] > 0]
    costs = {
        "k tokens": [generated_tokens(row, each) / 1000 for row in updates],
        "sandbox seconds": [sandbox_seconds(row) for row in updates],
        "wall seconds": [row.get(STEP_TIME, math.nan) for row in updates],
    }
    size = _updates_of(run, len(updates), samples)
    return {unit: np.reshape(values, (-1, size)).sum(1).tolist() for unit, values in costs.items()}


def spent_in(costs: Sequence[float], updates: float) -> float:
    """The cost of the first updates, the last one in part."""
    return float(np.interp(updates, range(len(costs) + 1), np.concatenate([[0.0], np.cumsum(costs)])))


def mean_online(accuracy: Sequence[float], last: int | None = None) -> float:
    """Mean over updates 2 to the last."""
    return float(np.mean(accuracy[FIRST - 1 : last]))


def fell(accuracy: Sequence[float], window: int) -> bool:
    """Whether a run unlearned: its last `window` updates have less than half of the accuracy of its best `window`."""
    window = min(window, len(accuracy))
    means = np.convolve(accuracy, np.full(window, 1 / window), "valid")
    return bool(means[-1] < means.max() / 2)


def updates_to(accuracy: Sequence[float], goal: Goal) -> tuple[float, bool]:
    """Updates until the samples first reach the goal, interpolated, and whether they do.

    A run that never does counts with all its updates, and none is left out: the mean over runs is then the restricted
    mean, that of min(updates, last) (Royston and Parmar 2013).
    """
    ends = range(min(goal.window, len(accuracy)), len(accuracy) + 1)
    # Rounded: the mean of equal values may lie below them.
    means = [round(float(np.mean(accuracy[max(0, end - goal.window) : end])), 12) for end in ends]
    above = [place for place, value in enumerate(means) if value >= goal.accuracy]
    if not above:
        return float(len(accuracy)), False
    place = above[0]
    if place == 0:
        return ends[0] - 1.0, True
    low, high = means[place - 1], means[place]
    return ends[place] - 2 + (goal.accuracy - low) / (high - low), True


def paired_p(differences: Sequence[float]) -> float | None:
    """Two-sided p of a t-test that their mean is 0; None for a single difference.

    Differences are rounded to 12 decimals: rounding errors of equal means would be significant.
    """
    if len(differences) < 2:
        return None
    rounded = np.round(differences, 12)
    if (rounded == rounded[0]).all():
        return 1.0 if rounded[0] == 0 else 0.0
    return float(scipy.stats.ttest_1samp(rounded, 0.0).pvalue)


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
