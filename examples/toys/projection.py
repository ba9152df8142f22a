"""Learning a new skill after protected ones, with constraint gradients known up to a given amount of noise.

The skills conflict over shared parameters; their values and gradients are known exactly. The protected skills are first
trained together, with their exact mean gradient. Then each update takes the exact ascent step of the new skill and
projects it against one noisy constraint gradient per protected skill, as `workers.projection.project` does, in numpy
for many small problems at once.

Shapes: N seeds (each with a separate problem), S protected skills and constraints (few: the exact method tries all 2^S
active sets), S + 1 skills of which the last is the new one, P parameters.

The study of `python -m examples.toys projection` is at the end: gain and forgetting by method, noise and slack.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Protocol

import numpy as np

from examples.toys.credit import Array, softmax
from recipe.records.intervals import Interval, bootstrap_interval

# Eigenvalues of the matrix of cosines below this are rounding errors, from duplicate or opposite gradients.
_EIGENVALUE_FLOOR = 1e-9
_SWEEPS = 100


def project(step: Array, constraints: Array, epsilon: float = 0.0, method: str = "qp") -> Array:
    """Steps (N, P) moved to <g_s, x> >= -epsilon |g_s| |d| for constraints (N, S, P); see `workers.projection`.

    Raises:
        ValueError: an unknown method, or a negative epsilon.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be >= 0, got {epsilon}")
    size = np.linalg.norm(step, axis=-1, keepdims=True)
    units = unit(constraints)
    margins = (units @ unit(step)[..., None])[..., 0] + epsilon
    multipliers = _SOLVERS[method](units @ units.swapaxes(-1, -2), margins)
    projected: Array = step + size * (multipliers[:, None] @ units)[:, 0]
    return projected


def unit(vectors: Array) -> Array:
    """Vectors scaled to length 1 along the last axis; a vector of 0 stays 0."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    units: Array = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return units


def _qp(gram: Array, margins: Array) -> Array:
    """argmin_{mu >= 0} 1/2 mu' C mu + mu' b: over all active sets, the least violation of optimality."""
    values, vectors = np.linalg.eigh(gram)
    definite = (vectors * np.maximum(values, _EIGENVALUE_FLOOR)[:, None]) @ vectors.swapaxes(-1, -2)
    best = np.zeros_like(margins)
    least = np.full(len(margins), np.inf)
    for active in product((False, True), repeat=margins.shape[1]):
        chosen = np.flatnonzero(active)
        candidate = np.zeros_like(margins)
        block = definite[:, chosen[:, None], chosen]
        candidate[:, chosen] = np.linalg.solve(block, -margins[:, chosen, None])[..., 0]
        slack = (definite @ candidate[..., None])[..., 0] + margins
        violation = np.maximum(-slack, -candidate).max(-1)
        better = violation < least - 1e-12
        best[better], least[better] = candidate[better], violation[better]
    return np.maximum(best, 0.0)


def _sequential_margin(gram: Array, margins: Array, sweeps: int = _SWEEPS) -> Array:
    """Move the step onto the boundary of each violated constraint in turn, until a sweep finds none."""
    multipliers = np.zeros_like(margins)
    for _ in range(sweeps):
        before = multipliers.copy()
        for s in range(margins.shape[1]):
            slack = (gram[:, s] * multipliers).sum(-1) + margins[:, s]
            multipliers[:, s] += np.maximum(-slack, 0.0)
        if (multipliers - before).max() < 1e-7:
            break
    return multipliers


def _pcgrad(gram: Array, margins: Array) -> Array:
    return _sequential_margin(gram, margins, sweeps=1)


def _none(gram: Array, margins: Array) -> Array:
    return np.zeros_like(margins)


_SOLVERS: dict[str, Callable[[Array, Array], Array]] = {
    "none": _none,
    "pcgrad": _pcgrad,
    "sequential_margin": _sequential_margin,
    "qp": _qp,
}
METHODS = tuple(_SOLVERS)


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
    """The target of skill s is A_s theta = y_s, with half as many equations as parameters: no point satisfies all.

    Its value is 1 - |A_s theta - y_s|^2 / |y_s|^2: 1 at the target, 0 at the untrained parameters 0.
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
        values: Array = 1 - (self._residuals(theta) ** 2).sum(-1) / (self.targets**2).sum(-1)
        return values

    def gradients(self, theta: Array) -> Array:
        slopes = (self._residuals(theta)[..., None, :] @ self.matrices)[..., 0, :]
        gradients: Array = -2 * slopes / (self.targets**2).sum(-1, keepdims=True)
        return gradients

    def _residuals(self, theta: Array) -> Array:
        return (self.matrices @ theta[:, None, :, None])[..., 0] - self.targets


@dataclass(frozen=True)
class Tabular:
    """Softmax policies on one table of contexts; a skill has one right action in each of its contexts.

    Skills share contexts (words), mostly with different right actions (meanings). A skill's value is its expected
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
        values: Array = (self.weights * (self._policy(theta) * self.right).sum(-1)).sum(-1)
        return values

    def gradients(self, theta: Array) -> Array:
        policy = self._policy(theta)
        chance = (policy * self.right).sum(-1, keepdims=True)
        slopes: Array = self.weights[..., None] * chance * (self.right - policy)
        return slopes.reshape(*slopes.shape[:2], self.parameters)

    def _policy(self, theta: Array) -> Array:
        return softmax(theta.reshape(-1, 1, self.contexts, self.actions))


ProblemKind = type[Quadratic] | type[Tabular]
PROBLEMS: tuple[ProblemKind, ...] = (Quadratic, Tabular)


# A constraint (in cosines) holds if it is missed by less than this.
_KEPT = 1e-6


@dataclass(frozen=True)
class ProtectionRun:
    """Settings: number of random problems, and number of updates for the protected skills and again for the new one."""

    seeds: int = 100
    updates: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.updates < 1:
            raise ValueError(f"seeds and updates must be >= 1, got {self.seeds} and {self.updates}")


@dataclass(frozen=True)
class Learning:
    """Course of the training of a new skill.

    values: (updates + 1, N, S + 1) of all skills, from the start of the new one's training. violated: (N,) share of the
    updates whose step violated an estimated constraint.
    """

    values: Array
    violated: Array

    @property
    def gain(self) -> Array:
        """Gain of the new skill after each update: (updates + 1, N)."""
        return self.values[:, :, -1] - self.values[0, :, -1]

    @property
    def forgetting(self) -> Array:
        """Loss of each protected skill after each update, negative where it improved: (updates + 1, N, S)."""
        return self.values[0, :, :-1] - self.values[:, :, :-1]


def learn_new_skill(
    kind: ProblemKind, method: str, run: ProtectionRun, cosine: float = 1.0, epsilon: float = 0.0
) -> Learning:
    """Train all seeds; the same `run` gives each method the same problems and the same noise.

    cosine: between estimated and true constraint gradients, in (0, 1]; the noise is drawn again at each update.
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
    """Vectors with the same length and exactly this cosine to the given ones, in an otherwise random direction."""
    directions = unit(gradients)
    noise = rng.normal(size=gradients.shape)
    noise = unit(noise - (noise * directions).sum(-1, keepdims=True) * directions)
    norms = np.linalg.norm(gradients, axis=-1, keepdims=True)
    noisy: Array = norms * (cosine * directions + np.sqrt(1 - cosine**2) * noise)
    return noisy


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
