"""Does a problem, or a data set, teach a model anything? Learning signal from several answers to each problem.

Where all answers to a problem earn the same, their group-relative advantages are zero. Ranges: accuracy 10% to 80%,
variance of the reward above 0.05, entropy 0.2 to 0.8 (docs/how-to/evaluate.md says where they come from).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recipe.evaluation.samples import Sample

ACCURACY, ENTROPY, VARIANCE = (0.1, 0.8), (0.2, 0.8), 0.05
# Beyond these a data set is the wrong one, not only hard or easy.
HOPELESS, SOLVED = 0.05, 0.95


@dataclass(frozen=True)
class Signal:
    """accuracy: share of accepted answers. variance: of the reward over answers. entropy: nats a generated token, None
    when the server gave no log-probabilities. Of a data set: means over its problems.
    """

    accuracy: float
    variance: float
    entropy: float | None

    @property
    def in_range(self) -> bool:
        return not verdict(self)


def signal(samples: Sequence[Sample]) -> Signal:
    """Of one problem, from its judged samples (at least one); entropy counts every token alike."""
    rewards = [sample.reward for sample in samples if sample.reward]
    measured = [
        (sample.answer.entropy, sample.answer.tokens) for sample in samples if sample.answer.entropy is not None
    ]
    tokens = sum(count for _, count in measured)
    entropy = sum(value * count for value, count in measured) / tokens if tokens else None
    accuracy = float(np.mean([reward["acc"] for reward in rewards]))
    return Signal(accuracy, float(np.var([reward["score"] for reward in rewards])), entropy)


def mean_signal(signals: Sequence[Signal]) -> Signal:
    """Of a data set, from its problems (at least one)."""
    entropies = [found.entropy for found in signals if found.entropy is not None]
    accuracy, variance = (
        float(np.mean([getattr(item, name) for item in signals])) for name in ("accuracy", "variance")
    )
    return Signal(accuracy, variance, float(np.mean(entropies)) if entropies else None)


def verdict(found: Signal) -> list[str]:
    """What is out of range, with what to do about it; empty when all is well."""
    told = []
    if found.accuracy < ACCURACY[0]:
        advice = "train it on demonstrations first" if found.accuracy < HOPELESS else "add easier problems"
        told.append(f"accuracy {found.accuracy:.1%} is below {ACCURACY[0]:.0%}: {advice}")
    if found.accuracy > ACCURACY[1]:
        advice = "choose a harder set" if found.accuracy > SOLVED else "add harder problems"
        told.append(f"accuracy {found.accuracy:.1%} is above {ACCURACY[1]:.0%}: {advice}")
    if found.variance <= VARIANCE:
        told.append(f"reward variance {found.variance:.3f} is not above {VARIANCE}: most groups teach nothing")
    if found.entropy is not None and found.entropy < ENTROPY[0]:
        told.append(f"entropy {found.entropy:.2f} is below {ENTROPY[0]}: the model says the same again and again")
    if found.entropy is not None and found.entropy > ENTROPY[1]:
        told.append(f"entropy {found.entropy:.2f} is above {ENTROPY[1]}: the model guesses")
    return told


def carrying(signals: Mapping[str, Signal], min_variance: float) -> set[str]:
    """The problems whose reward varies by more than this."""
    return {problem for problem, found in signals.items() if found.variance > min_variance}
