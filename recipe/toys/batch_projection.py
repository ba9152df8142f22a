"""The projection of `workers.projection.project` in numpy, for many small problems at once.

Legend of the shapes: N problems, S constraints (few: the exact method tries all 2^S active sets), P parameters.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Directions of the gradients below this share are rounding (duplicates, opposites).
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
    return step + size * (multipliers[:, None] @ units)[:, 0]


def unit(vectors: Array) -> Array:
    """Scaled to length 1 along the last axis; a vector of 0 stays 0."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


def _qp(gram: Array, margins: Array) -> Array:
    """argmin_{mu >= 0} 1/2 mu' C mu + mu' b: of all active sets, the one that breaks no condition of optimality."""
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
        broken = np.maximum(-slack, -candidate).max(-1)
        better = broken < least - 1e-12
        best[better], least[better] = candidate[better], broken[better]
    return np.maximum(best, 0.0)


def _sequential_margin(gram: Array, margins: Array, sweeps: int = _SWEEPS) -> Array:
    """Each violated constraint in turn is moved onto its boundary, until a sweep finds none."""
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
