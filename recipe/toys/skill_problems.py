"""Several skills in conflict over shared parameters, whose values and gradients are known exactly.

Legend of the shapes: N seeds (each with a problem of its own), S + 1 skills of which the last is the new one,
P parameters.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from recipe.toys.credit_training import softmax

Array = NDArray[np.float64]

PROTECTED = 3


class SkillProblem(Protocol):
    """Values (N, S + 1) of the skills, at most 1, and their ascent gradients (N, S + 1, P), at parameters (N, P)."""

    name: ClassVar[str]
    parameters: ClassVar[int]
    learning_rate: ClassVar[float]

    def values(self, theta: Array) -> Array: ...

    def gradients(self, theta: Array) -> Array: ...


@dataclass(frozen=True)
class Quadratic:
    """Skill s wants A_s theta = y_s, with half as many equations as parameters: no point serves all skills.

    Its value is 1 - |A_s theta - y_s|^2 / |y_s|^2: 1 where it is met, 0 at the untrained parameters 0.
    """

    matrices: Array  # (N, S + 1, P / 2, P)
    targets: Array  # (N, S + 1, P / 2)

    name: ClassVar[str] = "quadratic"
    parameters: ClassVar[int] = 20
    learning_rate: ClassVar[float] = 0.4

    @classmethod
    def draw(cls, rng: np.random.Generator, seeds: int) -> "Quadratic":
        rows, columns = cls.parameters // 2, cls.parameters
        shape = (seeds, PROTECTED + 1, rows)
        return cls(rng.normal(size=(*shape, columns)) / np.sqrt(columns), rng.normal(size=shape))

    def values(self, theta: Array) -> Array:
        return 1 - (self._residuals(theta) ** 2).sum(-1) / (self.targets**2).sum(-1)

    def gradients(self, theta: Array) -> Array:
        slopes = (self._residuals(theta)[..., None, :] @ self.matrices)[..., 0, :]
        return -2 * slopes / (self.targets**2).sum(-1, keepdims=True)

    def _residuals(self, theta: Array) -> Array:
        return (self.matrices @ theta[:, None, :, None])[..., 0] - self.targets


@dataclass(frozen=True)
class Tabular:
    """Softmax policies on one table of contexts; a skill asks for one right action in each of its contexts.

    Skills share contexts (words) and mostly ask for different actions in them (meanings). Its value is its expected
    reward, the mean probability of the right action over its contexts.
    """

    weights: Array  # (N, S + 1, contexts): 1 / 10 in the skill's own contexts
    right: Array  # (N, S + 1, contexts, actions), one-hot

    name: ClassVar[str] = "tabular"
    contexts: ClassVar[int] = 24
    own: ClassVar[int] = 10
    actions: ClassVar[int] = 4
    parameters: ClassVar[int] = 24 * 4
    learning_rate: ClassVar[float] = 10.0

    @classmethod
    def draw(cls, rng: np.random.Generator, seeds: int) -> "Tabular":
        shape = (seeds, PROTECTED + 1, cls.contexts)
        own = rng.random(shape).argsort(-1) < cls.own
        return cls(own / cls.own, np.eye(cls.actions)[rng.integers(0, cls.actions, shape)])

    def values(self, theta: Array) -> Array:
        return (self.weights * (self._policy(theta) * self.right).sum(-1)).sum(-1)

    def gradients(self, theta: Array) -> Array:
        policy = self._policy(theta)
        chance = (policy * self.right).sum(-1, keepdims=True)
        slopes = self.weights[..., None] * chance * (self.right - policy)
        return slopes.reshape(*slopes.shape[:2], self.parameters)

    def _policy(self, theta: Array) -> Array:
        return softmax(theta.reshape(-1, 1, self.contexts, self.actions))


ProblemKind = type[Quadratic] | type[Tabular]
PROBLEMS: tuple[ProblemKind, ...] = (Quadratic, Tabular)
