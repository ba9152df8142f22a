"""Learning a new skill after others whose constraint gradients are known up to a stated amount of noise.

The protected skills are first trained together, by their exact mean gradient. Then each update takes the exact
ascent step of the new skill and projects it against one noisy constraint gradient of each protected skill.
"""

from dataclasses import dataclass

import numpy as np

from recipe.toys.batch_projection import Array, project, unit
from recipe.toys.skill_problems import PROTECTED, ProblemKind, SkillProblem

# A constraint in cosines that is missed by less is kept.
_KEPT = 1e-6


@dataclass(frozen=True)
class ProtectionRun:
    """`seeds` problems are drawn; `updates` train the protected skills together, as many again the new skill."""

    seeds: int = 100
    updates: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.updates < 1:
            raise ValueError(f"seeds and updates must be >= 1, got {self.seeds} and {self.updates}")


@dataclass(frozen=True)
class Learning:
    """values: (updates + 1, N, S + 1) of all skills, from the start of the new one on. violated: (N,) share of the
    updates whose step broke a constraint as it was estimated."""

    values: Array
    violated: Array

    @property
    def gain(self) -> Array:
        """Of the new skill after each update: (updates + 1, N)."""
        return self.values[:, :, -1] - self.values[0, :, -1]

    @property
    def forgetting(self) -> Array:
        """Of each protected skill after each update, negative where it got better: (updates + 1, N, S)."""
        return self.values[0, :, :-1] - self.values[:, :, :-1]


def learn_new_skill(
    kind: ProblemKind, method: str, run: ProtectionRun, cosine: float = 1.0, epsilon: float = 0.0
) -> Learning:
    """Train all seeds; the same `run` gives each method the same problems and the same noise.

    cosine: of an estimated constraint gradient and the true one, in (0, 1]; the noise is fresh at each update.
    epsilon: slack of the projection, as a cosine.

    Raises:
        ValueError: a cosine out of range, an unknown method, a negative epsilon.
    """
    if not 0 < cosine <= 1:
        raise ValueError(f"cosine must lie in (0, 1], got {cosine}")
    drawing, noise = (np.random.default_rng([run.seed, stream]) for stream in range(2))
    problem = kind.draw(drawing, run.seeds)
    theta = train_protected(problem, run)
    values, violated = [problem.values(theta)], np.zeros(run.seeds)
    for _ in range(run.updates):
        gradients = problem.gradients(theta)
        proposed = problem.learning_rate * gradients[:, -1]
        estimates = with_noise(gradients[:, :-1], cosine, noise)
        step = project(proposed, estimates, epsilon, method)
        changes = (unit(estimates) @ step[..., None])[..., 0] / np.linalg.norm(proposed, axis=-1, keepdims=True)
        violated += (changes < -epsilon - _KEPT).any(-1)
        theta = theta + step
        values.append(problem.values(theta))
    return Learning(np.stack(values), violated / run.updates)


def train_protected(problem: SkillProblem, run: ProtectionRun) -> Array:
    """Parameters (N, P) after ascent on the mean of the protected skills, from 0."""
    theta = np.zeros((run.seeds, problem.parameters))
    for _ in range(run.updates):
        theta = theta + problem.learning_rate * problem.gradients(theta)[:, :PROTECTED].mean(1)
    return theta


def with_noise(gradients: Array, cosine: float, rng: np.random.Generator) -> Array:
    """Vectors of the same length at exactly this cosine to the given ones, in a random direction otherwise."""
    directions = unit(gradients)
    noise = rng.normal(size=gradients.shape)
    noise = unit(noise - (noise * directions).sum(-1, keepdims=True) * directions)
    norms = np.linalg.norm(gradients, axis=-1, keepdims=True)
    return norms * (cosine * directions + np.sqrt(1 - cosine**2) * noise)
