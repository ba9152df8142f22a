"""Learning signal of a problem or a data set, from several answers to each problem.

If all answers to a problem earn the same reward, their group-relative advantages are zero. Ranges: accuracy 10% to 80%,
variance of the reward above 0.05, entropy 0.2 to 0.8 (sources: docs/how-to/evaluate.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recipe.evaluation.samples import Sample

ACCURACY, ENTROPY, VARIANCE = (0.1, 0.8), (0.2, 0.8), 0.05
# Accuracies beyond which a data set is unsuitable, not only hard or easy.
HOPELESS, SOLVED = 0.05, 0.95


@dataclass(frozen=True)
class Signal:
    """Learning signal; for a data set, means over its problems.

    accuracy: share of accepted answers. variance: of the reward over answers. entropy: in nats per generated token,
    None if the server returned no log-probabilities. pass_ratio: mean share of tests passed. mixed: share of problems
    with accepted and other answers, so with a gradient.
    """

    accuracy: float
    variance: float
    entropy: float | None
    pass_ratio: float
    mixed: float = 0.0


def signal(samples: Sequence[Sample]) -> Signal:
    """Signal of one problem, from its judged samples (at least one); entropy is a mean over tokens."""
    rewards = [sample.reward for sample in samples if sample.reward]
    measured = [
        (sample.answer.entropy, sample.answer.tokens) for sample in samples if sample.answer.entropy is not None
    ]
    tokens = sum(count for _, count in measured)
    entropy = sum(value * count for value, count in measured) / tokens if tokens else None
    accuracy, pass_ratio = (float(np.mean([reward[name] for reward in rewards])) for name in ("acc", "pass_ratio"))
    variance = float(np.var([reward["score"] for reward in rewards]))
    return Signal(accuracy, variance, entropy, pass_ratio, float(0 < accuracy < 1))


def mean_signal(signals: Sequence[Signal]) -> Signal:
    """Signal of a data set, from its problems (at least one)."""
    entropies = [found.entropy for found in signals if found.entropy is not None]
    names = ("accuracy", "variance", "pass_ratio", "mixed")
    means = {name: float(np.mean([getattr(item, name) for item in signals])) for name in names}
    return Signal(entropy=float(np.mean(entropies)) if entropies else None, **means)


def verdict(signal: Signal) -> list[str]:
    """Messages about values out of range, with advice; empty if all are in range."""
    messages = []
    if signal.accuracy < ACCURACY[0]:
        advice = "train it on demonstrations first" if signal.accuracy < HOPELESS else "add easier problems"
        messages.append(f"accuracy {signal.accuracy:.1%} is below {ACCURACY[0]:.0%}: {advice}")
    if signal.accuracy > ACCURACY[1]:
        advice = "choose a harder set" if signal.accuracy > SOLVED else "add harder problems"
        messages.append(f"accuracy {signal.accuracy:.1%} is above {ACCURACY[1]:.0%}: {advice}")
    if signal.variance <= VARIANCE:
        messages.append(f"reward variance {signal.variance:.3f} is not above {VARIANCE}: most groups teach nothing")
    if signal.entropy is not None and signal.entropy < ENTROPY[0]:
        messages.append(f"entropy {signal.entropy:.2f} is below {ENTROPY[0]}: the model repeats itself")
    if signal.entropy is not None and signal.entropy > ENTROPY[1]:
        messages.append(f"entropy {signal.entropy:.2f} is above {ENTROPY[1]}: the model guesses")
    return messages


def carrying(signals: Mapping[str, Signal], min_variance: float) -> set[str]:
    """The problems with a reward variance above `min_variance`."""
    return {problem for problem, found in signals.items() if found.variance > min_variance}
