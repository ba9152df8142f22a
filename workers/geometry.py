"""The projection's problem in inner products: unit vectors, solvers, and constraints that know their noise.

Shapes: S constraints. All vectors and matrices are of S numbers: they cost microseconds beside reading the gradients.
A constraint with relative noise n_s (the gradient's error over its length, times kappa) is a cone:

    <g_s, x> >= -eps_s + n_s |g_s| |x|.

In unit vectors, with w = d + sum_s mu_s g_s and c = sum_s mu_s n_s, the dual and the solution are

    min_{mu >= 0} 1/2 max(0, |w| - c)^2 + mu' eps,      x = max(0, 1 - c / |w|) w,

which is the quadratic program where all n_s are 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import quadprog
from numpy.typing import NDArray

from workers.aggregators import AGGREGATORS, aggregator

Vector = NDArray[np.float64]
# Methods that enforce constraints; `project` also takes "none" and torchjd's aggregators.
Solver = Literal["qp", "sequential_margin", "pcgrad", "agem"]

# Eigenvalues of the matrix of cosines below this are fp32 noise, from duplicate or opposite gradients for example.
_EIGENVALUE_FLOOR = 1e-7
# A multiplier (in units of the step) up to this is rounding error.
_NO_MULTIPLIER = 1e-12
# A constraint (in cosines) holds if it is missed by less than this.
KEPT = 1e-5
# |x| / |d| up to which a closed loop may ask for gain: nearly opposite gradients would ask for any length.
LONGEST = 2.0
# Bisections of the requested gain.
_HALVINGS = 16


@dataclass(frozen=True)
class Geometry:
    """The problem in unit vectors: |g_s| = 1 and |d| = 1, so that no norm reaches the solver."""

    still: bool  # d = 0
    step_norm: float  # |d|; 1 for d = 0, so that an absolute epsilon is then measured in units of one
    norms: Vector  # (S,) |g_s|
    cosines: Vector  # (S,) of d and g_s
    gram: Vector  # (S, S) of g_s and g_r

    @staticmethod
    def of(square: float, dots: Vector, gram: Vector) -> "Geometry":
        """From <d, d>, <g_s, d> (S,) and <g_s, g_r> (S, S)."""
        norms = np.sqrt(np.diag(gram))
        inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        step_norm = math.sqrt(square) or 1.0
        return Geometry(square == 0, step_norm, norms, dots * inverse / step_norm, gram * np.outer(inverse, inverse))

    def unit_epsilon(self, epsilon: Vector, kind: str) -> Vector:
        """Each epsilon as a cosine."""
        if kind == "cosine":
            return np.zeros_like(epsilon) if self.still else epsilon
        if kind != "absolute":
            raise ValueError(f"epsilon_kind must be absolute or cosine, got {kind!r}")
        scale = self.norms * self.step_norm
        # The constraint of a gradient of 0 is 0 >= -eps: only the sign of eps counts.
        return np.divide(epsilon, scale, out=epsilon.copy(), where=scale > 0)

    def length(self, kept: float, mu: Vector) -> float:
        """|kept d + sum_s mu_s g_s| of the unit vectors."""
        return math.sqrt(max(0.0, float(kept**2 + 2 * kept * mu @ self.cosines + mu @ self.gram @ mu)))

    def to_multipliers(self, mu: Vector) -> Vector:
        """The multipliers of d and g_s as they were given."""
        return np.divide(mu * self.step_norm, self.norms, out=np.zeros_like(mu), where=self.norms > 0)

    def only(self, live: NDArray[np.bool_]) -> "Geometry":
        """The same problem with these constraints alone."""
        part = self.gram[np.ix_(live, live)]
        return Geometry(self.still, self.step_norm, self.norms[live], self.cosines[live], part)


def solve(
    geometry: Geometry, eps: Vector, noise: Vector, method: str, sweeps: int
) -> tuple[float, Vector, Vector, bool]:
    """Share of d, multipliers of the unit vectors, the epsilon they satisfy, whether the requested one was feasible."""
    live = (geometry.norms > 0) & np.isfinite(eps)
    part, noises = geometry.only(live), noise[live]
    feasible = bool((eps[~live] >= 0).all())  # no step gains anything along a gradient of 0
    eps = np.where(live, eps, np.maximum(eps, 0.0))
    met = _met(part, eps[live], noises, sweeps)
    feasible &= bool((met == eps[live]).all())
    eps[live] = met
    mu = np.zeros(len(eps))
    kept, mu[live] = _SOLVERS[method](part, eps[live], noises, sweeps)
    return kept, mu, eps, feasible


def _met(part: Geometry, eps: Vector, noise: Vector, sweeps: int) -> Vector:
    """The epsilons with demands (eps < 0) at 0: those that no step meets beside bounds alone, then, if need be, all."""

    def feasible(wanted: Vector) -> bool:
        kept, gain = _nearest(part, wanted, noise, sweeps)
        return keeps(slacks(part, kept, gain, noise), wanted)

    if not (eps < 0).any() or feasible(eps):
        return eps
    bounds = np.maximum(eps, 0.0)
    each = np.arange(len(eps))
    alone = [feasible(np.where(each == s, eps, bounds)) for s in each]
    some = np.where(alone, eps, bounds)
    return some if feasible(some) else bounds


def slacks(geometry: Geometry, kept: float, mu: Vector, noise: Vector) -> Vector:
    """<g_s, x> of unit vectors, less what the constraint's noise may take."""
    change: Vector = kept * geometry.cosines + geometry.gram @ mu
    return change - noise * geometry.length(kept, mu) if noise.any() else change


def keeps(change: Vector, eps: Vector) -> bool:
    """Whether every constraint holds for these changes, in cosines."""
    return bool((change + eps >= -KEPT * (1 + np.abs(eps))).all())


def aggregate(geometry: Geometry, name: str) -> tuple[float, Vector]:
    """The weights of the unit step and the unit vectors; gradients of 0 are left out."""
    live = geometry.norms > 0
    cosines = geometry.cosines[live]
    rows = np.block([[np.ones((1, 1)), cosines[None]], [cosines[:, None], geometry.gram[np.ix_(live, live)]]])
    kept, *weights = aggregator(name)(rows)
    mu = np.zeros(len(live))
    mu[live] = weights
    return float(kept), mu


def _nearest(part: Geometry, eps: Vector, noise: Vector, sweeps: int) -> tuple[float, Vector]:
    return _cone(part, eps, noise) if noise.any() else (1.0, _qp(part, eps))


def _qp(part: Geometry, eps: Vector) -> Vector:
    """argmin_{mu >= 0} 1/2 mu' C mu + mu' (b + eps), by the dual method of Goldfarb and Idnani (1983)."""
    if not len(eps):
        return eps
    # quadprog needs a positive definite matrix: only eigenvalues within the noise are raised, the others stay exact.
    values, vectors = np.linalg.eigh(part.gram)
    definite = (vectors * np.maximum(values, _EIGENVALUE_FLOOR)) @ vectors.T
    normal = -(part.cosines + eps)
    mu = quadprog.solve_qp((definite + definite.T) / 2, normal, np.eye(len(eps)), np.zeros(len(eps)))[0]
    return np.where(mu > _NO_MULTIPLIER, mu, 0.0)


def _cone(part: Geometry, eps: Vector, noise: Vector) -> tuple[float, Vector]:
    """The module's dual by L-BFGS-B from the quadratic program's solution; a bounded problem of S numbers."""
    from scipy.optimize import minimize  # half a second that runs without noise need not pay

    def dual(mu: Vector) -> tuple[float, Vector]:
        length, margin = part.length(1.0, mu), float(noise @ mu)
        left = max(length - margin, 0.0)
        if left == 0:
            return float(mu @ eps), eps
        slope: Vector = left * ((part.cosines + part.gram @ mu) / length - noise) + eps
        return 0.5 * left**2 + float(mu @ eps), slope

    start = _qp(part, eps - noise)
    options = {"maxiter": 1000, "maxfun": 5000, "ftol": 1e-15, "gtol": 1e-10}
    bounds = [(0.0, 1e6)] * len(eps)
    mu = minimize(dual, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    mu = np.where(mu > _NO_MULTIPLIER, mu, 0.0)
    length = part.length(1.0, mu)
    kept = max(1.0 - float(noise @ mu) / length, 0.0) if length > 0 else 0.0
    return kept, kept * mu


def _sequential_margin(part: Geometry, eps: Vector, noise: Vector, sweeps: int) -> tuple[float, Vector]:
    """Move the step onto the boundary of each violated constraint in turn, until a sweep finds none."""
    mu = np.zeros(len(eps))
    for _ in range(sweeps):
        satisfied = True
        for s in range(len(eps)):
            slack = part.gram[s] @ mu + part.cosines[s] + eps[s]
            if slack < -_EIGENVALUE_FLOOR:
                mu[s] -= slack
                satisfied = False
        if satisfied:
            break
    return 1.0, mu


def _pcgrad(part: Geometry, eps: Vector, noise: Vector, sweeps: int) -> tuple[float, Vector]:
    return _sequential_margin(part, np.zeros(len(eps)), noise, sweeps=1)


def _agem(part: Geometry, eps: Vector, noise: Vector, sweeps: int) -> tuple[float, Vector]:
    """One constraint, the mean of the gradients as they are: <mean_s g_s, x> >= 0."""
    lengths = part.norms / max(len(eps), 1)  # the mean in unit vectors
    harm, square = float(lengths @ part.cosines), float(lengths @ part.gram @ lengths)
    return 1.0, lengths * (max(-harm, 0.0) / square if square > 0 else 0.0)


_SOLVERS: dict[str, Callable[[Geometry, Vector, Vector, int], tuple[float, Vector]]] = {
    "qp": _nearest,
    "sequential_margin": _sequential_margin,
    "pcgrad": _pcgrad,
    "agem": _agem,
}
METHODS = (*_SOLVERS, "none", *AGGREGATORS)
WITHOUT_SLACK = ("pcgrad", "agem", *AGGREGATORS)


@dataclass(frozen=True)
class GeometrySolution:
    """What a method found, in unit vectors. violated: before it. eps: what it kept to; feasible: is it as requested?"""

    violated: NDArray[np.bool_]
    kept: float
    mu: Vector
    eps: Vector
    feasible: bool


def solved(
    geometry: Geometry, eps: Vector, noises: Vector, method: str, sweeps: int, bounded: bool = False
) -> GeometrySolution:
    """The method's solution; a step that violates nothing is kept as it is.

    bounded: where gain is requested (eps < 0), it is scaled down so that |x| <= LONGEST |d|.
    """
    violated = geometry.cosines - noises + eps < 0
    kept, mu, feasible = 1.0, np.zeros(len(eps)), True
    if violated.any() and method in AGGREGATORS:
        kept, mu = aggregate(geometry, method)
    elif violated.any() and method != "none":
        kept, mu, eps, feasible = solve(geometry, eps, noises, method, sweeps)
        if bounded and (eps < 0).any() and not geometry.still and geometry.length(kept, mu) > LONGEST:
            kept, mu, eps = _shortened(geometry, eps, noises, method, sweeps)
    return GeometrySolution(violated, kept, mu, eps, feasible)


def _shortened(
    geometry: Geometry, eps: Vector, noises: Vector, method: str, sweeps: int
) -> tuple[float, Vector, Vector]:
    """The solution for the largest share of the gain that keeps |x| <= LONGEST |d|, by bisection."""
    low, high = 0.0, 1.0
    best = solve(geometry, np.maximum(eps, 0.0), noises, method, sweeps)
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        solution = solve(geometry, np.where(eps < 0, share * eps, eps), noises, method, sweeps)
        if solution[3] and geometry.length(solution[0], solution[1]) <= LONGEST:
            low, best = share, solution
        else:
            high = share
    return best[:3]
