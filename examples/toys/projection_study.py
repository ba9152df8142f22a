"""Gain and forgetting by method, noise and slack: the study of `python -m examples.toys projection`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from examples.toys.projection_training import METHODS, PROBLEMS, Learning, ProtectionRun, learn_new_skill
from recipe.records.intervals import Interval, bootstrap_interval

COSINES = (1.0, 0.9, 0.71, 0.32)
EPSILONS = (0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True)
class ProtectionResult:
    """Result of one method at one noise and slack, over seeds, in units of a skill's value.

    gain: of the new skill. forgetting: mean over the protected skills; worst: of the skill that lost the most.
    unprotected: mean forgetting of plain ascent, stopped at the same mean gain.
    violated: share of the updates whose step violated an (estimated) constraint.
    path: mean (forgetting, gain) after each update.
    """

    problem: str
    cosine: float
    method: str
    epsilon: float
    gain: Interval
    forgetting: Interval
    worst: Interval
    unprotected: float
    violated: float
    path: list[tuple[float, float]]


def study(
    run: ProtectionRun, cosines: Sequence[float] = COSINES, epsilons: Sequence[float] = EPSILONS
) -> Iterator[ProtectionResult]:
    """Results on both problems: all methods without slack at each noise, and qp with exact gradients at each slack."""
    cases = [(cosine, method, 0.0) for cosine in cosines for method in METHODS]
    cases += [(1.0, "qp", epsilon) for epsilon in epsilons]
    for kind in PROBLEMS:
        plain = learn_new_skill(kind, "none", run)
        for cosine, method, epsilon in cases:
            learning = learn_new_skill(kind, method, run, cosine, epsilon)
            yield _summary(learning, plain, kind.name, cosine, method, epsilon)


def _summary(
    learning: Learning, plain: Learning, problem: str, cosine: float, method: str, epsilon: float
) -> ProtectionResult:
    gain, forgetting = learning.gain, learning.forgetting
    plain_gain, plain_forgetting = plain.gain.mean(1), plain.forgetting.mean((1, 2))
    path = zip(forgetting.mean((1, 2)).tolist(), gain.mean(1).tolist(), strict=True)
    return ProtectionResult(
        problem=problem,
        cosine=cosine,
        method=method,
        epsilon=epsilon,
        gain=bootstrap_interval(gain[-1]),
        forgetting=bootstrap_interval(forgetting[-1].mean(-1)),
        worst=bootstrap_interval(forgetting[-1].max(-1)),
        unprotected=float(np.interp(gain[-1].mean(), plain_gain, plain_forgetting)),
        violated=float(learning.violated.mean()),
        path=list(path),
    )


def table(results: Sequence[ProtectionResult]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| problem | cosine | method | epsilon | gain of the new skill | forgetting, mean | forgetting, worst skill "
        "| unprotected, at that gain | broken (% of steps) |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in results:
        case = [row.problem, f"{row.cosine:g}", row.method, f"{row.epsilon:g}"]
        intervals = [interval.text(2) for interval in (row.gain, row.forgetting, row.worst)]
        cells = [*case, *intervals, f"{row.unprotected:.2f}", f"{100 * row.violated:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
