"""Sampling weights that favour the worst skill (MT-GRPO, arXiv 2602.05547).

    p = softmax(w),    w <- w - rate p (delta - p' delta),    delta_k = I_k + trade J_k

J_k is an exponential average of skill k's accuracy on the steps' own samples, I_k what this step changed in it: a skill
that is low, or gains nothing, gains weight. A batch has prompts in proportion to p_k / (1 - z_k), where z_k is the
average share of the skill's groups whose samples all have one score, and so no gradient.

The authors' code (rsshyam/MT-GRPO, verl/verl/utils/auto_curriculum/priority.py) differs: w moves by Adam with weight
decay, the improvement is that of each task's loss, and prompts are drawn by chance, again until enough groups have a
gradient. Ours moves w by the formula, takes the improvement from accuracies, asks for the prompts at once, and keeps
one prompt of every skill in each batch.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

AVERAGE = 0.5
"""Weight of earlier steps in J and z: the authors' decay."""
MOST_ZERO = 0.9
"""A skill gets at most ten times its share of prompts to make up for groups without gradient."""

Vector = NDArray[np.float64]


class SkillWeights:
    """Weights of the skills, in their order. rate, trade: of the module's formula. Nothing is random."""

    def __init__(self, skills: Sequence[str], rate: float, trade: float):
        self.skills = list(skills)
        self.rate, self.trade = rate, trade
        self.weights: Vector = np.zeros(len(self.skills))
        self.accuracy: dict[str, float] = {}
        self.zero: dict[str, float] = {}

    @property
    def shares(self) -> Vector:
        """(skills,) p, which sums to 1."""
        raised = np.exp(self.weights - self.weights.max())
        return np.asarray(raised / raised.sum(), dtype=np.float64)

    def update(self, accuracies: Mapping[str, float], zero: Mapping[str, float]) -> None:
        """Move the weights by a step's accuracies; shares of groups without gradient change the next prompts only.

        A skill without verified samples counts as unchanged.
        """
        before = dict(self.accuracy)
        for averages, values in ((self.accuracy, accuracies), (self.zero, zero)):
            for skill, value in values.items():
                averages[skill] = AVERAGE * averages.get(skill, value) + (1 - AVERAGE) * value
        now = [self.accuracy.get(skill, 0.0) for skill in self.skills]
        gains = [value - before.get(skill, value) for skill, value in zip(self.skills, now, strict=True)]
        self.move(np.array(gains) + self.trade * np.array(now))

    def move(self, delta: Vector) -> None:
        """One step of the formula. delta: (skills,)."""
        shares = self.shares
        self.weights -= self.rate * shares * (delta - shares @ delta)

    def prompts(self, batch: int) -> list[int]:
        """Prompts of each skill in a batch of so many: at least one, the rest by largest remainders."""
        zero = np.array([min(self.zero.get(skill, 0.0), MOST_ZERO) for skill in self.skills])
        wanted = self.shares / (1 - zero)
        rest = np.maximum(wanted / wanted.sum() * batch - 1, 0)
        exact = rest / (rest.sum() or 1.0) * (batch - len(self.skills))
        counts = np.floor(exact + 1e-9).astype(int)
        left = batch - len(self.skills) - counts.sum()
        counts[np.argsort(counts - exact, kind="stable")[:left]] += 1
        return [int(count) + 1 for count in counts]

    def metrics(self) -> dict[str, float]:
        """``protocol/share/<skill>``: p."""
        return {f"protocol/share/{skill}": float(p) for skill, p in zip(self.skills, self.shares, strict=True)}

    def state(self) -> dict[str, Any]:
        """The whole content, as JSON values."""
        return {"weights": self.weights.tolist(), "accuracy": self.accuracy, "zero": self.zero}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the content by what `state` returned."""
        self.weights = np.array(state["weights"], dtype=np.float64)
        self.accuracy, self.zero = dict(state["accuracy"]), dict(state["zero"])


def zero_gradient_shares(infos: Sequence[Mapping[str, Any]], prompts: Sequence[str]) -> dict[str, float]:
    """Share of each skill's groups whose verified samples all have one score."""
    groups: dict[str, dict[str, set[float]]] = defaultdict(lambda: defaultdict(set))
    for info, prompt in zip(infos, prompts, strict=True):
        if "skill" in info and not info.get("masked") and info.get("score") is not None:
            groups[str(info["skill"])][prompt].add(float(info["score"]))
    return {skill: sum(len(scores) == 1 for scores in of.values()) / len(of) for skill, of in groups.items()}
