"""What the constraints of a run's projections knew, from the metrics of its steps."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

SOURCES = ("rollouts", "solutions")
MOVED = "moved"
UNPROTECTED = "unprotected skills a step"


def split_half(source: str) -> str:
    """Name of the number: how well the gradients of two halves of a skill's samples from this source agree."""
    return f"split-half cosine, {source}"


NUMBERS = (*map(split_half, SOURCES), MOVED, UNPROTECTED)


def constraint_means(steps: Sequence[Mapping[str, float]], source: str) -> dict[str, float]:
    """The `NUMBERS` of a run: means over the steps (and over skills where each has its own) that measured them, or NaN.

    source: the configuration's constraint_source. A skill is unprotected in a step where all its constraints are zero.
    """
    cosines, unprotected = defaultdict(list), []
    for step in steps:
        for name, cosine in _of(step, "split_half_cosine/"):
            cosines[_skill_and_source(name, source)[1]].append(cosine)
        silent = defaultdict(list)
        for name, zero in _of(step, "unprotected/"):
            silent[_skill_and_source(name, source)[0]].append(bool(zero))
        if silent:
            unprotected.append(sum(map(all, silent.values())))
    moved = [share for step in steps for _, share in _of(step, "moved")]
    return {split_half(kind): _mean(cosines[kind]) for kind in SOURCES} | {
        MOVED: _mean(moved),
        UNPROTECTED: _mean(unprotected),
    }


def _of(step: Mapping[str, float], metric: str) -> list[tuple[str, float]]:
    prefix = f"actor/projection/{metric}"
    return [(key.removeprefix(prefix), value) for key, value in step.items() if key.startswith(prefix)]


def _skill_and_source(constraint: str, source: str) -> tuple[str, str]:
    """Of a constraint's name, which says its source only where a skill has one from both."""
    if source != "both":
        return constraint, source
    skill, _, kind = constraint.rpartition(".")
    return skill, kind


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else np.nan
