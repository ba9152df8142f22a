"""Measures of an accuracy matrix: the effect of a run with several skills on each of them.

``accuracy[i, j]`` is the accuracy on skill j after stage i, NaN where it was not measured. Public libraries disagree on
these measures (Mammoth clips forgetting at 0, Avalanche takes the first value minus the last, GEM averages a structural
zero); the docstrings define them for this module. A NaN in the input of a measure makes that measure NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Stages = Sequence[Sequence[int]]  # indices of the skills that each stage trains

OVER_SKILLS = ("mean", "worst")
"""What metrics of all skills together have in place of a skill's name."""


def average(accuracy: ArrayLike) -> float:
    """Mean over skills of the accuracy after the last stage."""
    return float(_matrix(accuracy)[-1].mean())


def worst_skill(accuracy: ArrayLike) -> float:
    """Lowest accuracy of any skill after the last stage."""
    return float(_matrix(accuracy)[-1].min())


def forgetting(accuracy: ArrayLike, initial: ArrayLike) -> Array:
    """Best accuracy before training or after any earlier stage, minus that after the last one, per skill (skills,).

    Negative where the skill is better than ever (backward transfer): not clipped. A skill trained in the last stage
    has a value too, usually negative; leave it out of a mean over earlier skills. Chaudhry et al. 2018 (arXiv
    1801.10112, eq. 3) count stages alone; but skills that the model had before training can be lost as well.

    Args:
        accuracy: (stages, skills).
        initial: (skills,), before any stage. Values that were not measured, here or after a stage, are no peak.
    """
    matrix = _matrix(accuracy)
    before = np.vstack([_of_each_skill(initial, matrix), matrix[:-1]])
    forgotten: Array = np.fmax.reduce(before, axis=0) - matrix[-1]
    return forgotten


def split_forgetting(halves: ArrayLike) -> Array:
    """As `forgetting`, but the best stage is chosen on half of the prompts and read on the other half (skills,).

    The largest of noisy accuracies is too large, so `forgetting` exceeds 0 where nothing was lost; here the noise of
    the choice is not that of the reading. Mean over both ways around, each against the same half after the last stage.

    Args:
        halves: (2, 1 + stages, skills) accuracy of each half of the prompts before training and after each stage. Only
            stages with both are a choice; without one, or with a half that was not measured at the end: NaN.
    """
    accuracy = np.asarray(halves, dtype=np.float64)
    if accuracy.ndim != 3 or accuracy.shape[0] != 2 or accuracy.shape[1] < 2:
        raise ValueError(f"halves must be (2, 1 + stages, skills) with at least one stage, got {accuracy.shape}")
    before, last = accuracy[:, :-1], accuracy[:, -1]
    known = np.isfinite(before).all(axis=0)
    forgotten = np.zeros(accuracy.shape[2])
    for chosen, read in ((0, 1), (1, 0)):
        best = np.where(known, before[chosen], -np.inf).argmax(axis=0)
        forgotten += (np.take_along_axis(before[read], best[None], axis=0)[0] - last[read]) / 2
    found: Array = np.where(known.any(axis=0), forgotten, np.nan)
    return found


def stage_ends(accuracy: ArrayLike, trained: Stages) -> Array:
    """Accuracy on each skill after the last stage that trains it (skills,); NaN for a skill that none trains.

    Args:
        accuracy: (stages, skills).
        trained: the skills that each stage trains.
    """
    matrix = _matrix(accuracy)
    ends = np.full(matrix.shape[1], np.nan)
    for row, skills in zip(matrix, _trained(trained, matrix), strict=True):
        ends[list(skills)] = row[list(skills)]
    return ends


def forward_transfer(accuracy: ArrayLike, initial: ArrayLike, trained: Stages | None = None) -> Array:
    """Accuracy on each skill just before its own stage minus the initial one (skills,).

    Args:
        accuracy: (stages, skills).
        initial: (skills,), before any stage.
        trained: the skills that each stage trains; by default stage i trains skill i alone.

    Returns:
        NaN for a skill that no stage trains, and for those of the first stage: no stage precedes it.
    """
    matrix = _matrix(accuracy)
    start = _of_each_skill(initial, matrix)
    transfer = np.full(matrix.shape[1], np.nan)
    seen: set[int] = set()
    for stage, skills in enumerate(_trained(trained, matrix)):
        for skill in skills - seen if stage > 0 else ():
            transfer[skill] = matrix[stage - 1, skill] - start[skill]
        seen |= skills
    return transfer


@dataclass(frozen=True)
class Interference:
    """The effect of each stage on each skill: as measured, and as the projection predicted it."""

    measured: Array  # (stages, skills) change of the accuracy in that stage
    predicted: Array | None  # (stages, skills) sum over the stage's steps of <g_s, step>
    correlation: float  # Pearson's, over pairs with both known; NaN if undefined


def interference(
    accuracy: ArrayLike,
    initial: ArrayLike | None = None,
    predicted: ArrayLike | None = None,
    trained: Stages | None = None,
) -> Interference:
    """The change of each skill's accuracy in each stage, with its first-order prediction.

    Args:
        accuracy: (stages, skills).
        initial: (skills,), before any stage; without it the first stage's changes are NaN.
        predicted: (stages, skills), sums of ``Projection.change``.
        trained: the skills that each stage trains. If given, a stage's effect on its own skills is left out of the
            correlation: an improvement of the trained skills is no interference.
    """
    matrix = _matrix(accuracy)
    before = np.full(matrix.shape[1], np.nan) if initial is None else _of_each_skill(initial, matrix)
    measured = np.diff(np.vstack([before, matrix]), axis=0)
    if predicted is None:
        return Interference(measured, None, float("nan"))
    prediction = np.asarray(predicted, dtype=np.float64)
    if prediction.shape != matrix.shape:
        raise ValueError(f"predicted must have the shape of accuracy {matrix.shape}, got {prediction.shape}")
    known = np.isfinite(measured) & np.isfinite(prediction)
    if trained is not None:
        for stage, skills in enumerate(_trained(trained, matrix)):
            known[stage, list(skills)] = False
    return Interference(measured, prediction, _pearson(measured[known], prediction[known]))


@dataclass(frozen=True)
class Spread:
    """A measure over seeds."""

    mean: Array
    deviation: Array  # sample standard deviation (n - 1); NaN for one seed
    low: Array
    high: Array


def seed_spread(values: ArrayLike) -> Spread:
    """Mean, standard deviation, minimum and maximum over the first axis, the seeds."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or len(array) == 0:
        raise ValueError(f"values must be (seeds, ...) with at least one seed, got shape {array.shape}")
    deviation = array.std(axis=0, ddof=1) if len(array) > 1 else np.full(array.shape[1:], np.nan)
    return Spread(array.mean(axis=0), deviation, array.min(axis=0), array.max(axis=0))


def _pearson(first: Array, second: Array) -> float:
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def _matrix(accuracy: ArrayLike) -> Array:
    matrix = np.asarray(accuracy, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"accuracy must be (stages, skills) with at least one of each, got shape {matrix.shape}")
    return matrix


def _of_each_skill(initial: ArrayLike, matrix: Array) -> Array:
    values = np.asarray(initial, dtype=np.float64)
    if values.shape != matrix.shape[1:]:
        raise ValueError(f"initial must be {matrix.shape[1:]} for accuracy {matrix.shape}, got {values.shape}")
    return values


def _trained(trained: Stages | None, matrix: Array) -> list[set[int]]:
    stages, skills = matrix.shape
    found = [{stage} for stage in range(stages)] if trained is None else [set(stage) for stage in trained]
    if len(found) != stages or not all(stage and stage <= set(range(skills)) for stage in found):
        raise ValueError(f"trained must name some of {skills} skills for each of {stages} stages, got {trained}")
    return found
