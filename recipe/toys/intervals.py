"""95% confidence intervals over seeds."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

_RESAMPLES = 2000
_Z = 1.959963984540054


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its 95% confidence interval."""

    estimate: float
    low: float
    high: float

    def text(self, decimals: int = 1, sign: str = "") -> str:
        """As ``estimate [low, high]``."""
        estimate, low, high = (f"{value:{sign}.{decimals}f}" for value in (self.estimate, self.low, self.high))
        return f"{estimate} [{low}, {high}]"


def mean_interval(values: ArrayLike, seed: int = 0) -> Interval:
    """Mean of one value a seed, with the percentile bootstrap (2000 resamples; Efron & Tibshirani 1993, chapter 13).

    Raises:
        ValueError: no value, or a matrix.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) == 0:
        raise ValueError(f"values must be (seeds,) with at least one seed, got shape {sample.shape}")
    rng = np.random.default_rng(seed)
    means = sample[rng.integers(0, len(sample), (_RESAMPLES, len(sample)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(sample.mean()), float(low), float(high))


def share_interval(successes: int, trials: int) -> Interval:
    """A share with Wilson's score interval (Wilson 1927), which stays inside [0, 1] also at 0 or all successes.

    Raises:
        ValueError: successes not in [0, trials], or no trial.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"successes must lie in [0, trials] and trials be >= 1, got {successes} of {trials}")
    share, z2 = successes / trials, _Z**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    # At 0 or all successes one end is the share itself; rounding must not move it.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return Interval(share, low, high)
