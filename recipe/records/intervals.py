"""95% confidence intervals: of a mean over seeds, runs or problems, and of a share."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest, bootstrap

_RESAMPLES = 2000


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
    """Mean of independent values, with the percentile bootstrap (2000 resamples; Efron & Tibshirani 1993, chapter 13).

    Raises:
        ValueError: no value, or a matrix.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) == 0:
        raise ValueError(f"values must be (seeds,) with at least one seed, got shape {sample.shape}")
    mean = float(sample.mean())
    if len(sample) == 1:  # scipy refuses what no resampling can vary
        return Interval(mean, mean, mean)
    found = bootstrap(
        (sample,), np.mean, n_resamples=_RESAMPLES, method="percentile", rng=np.random.default_rng(seed)
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high))


def share_interval(successes: int, trials: int) -> Interval:
    """A share with Wilson's score interval (Wilson 1927), which stays inside [0, 1] also at 0 or all successes.

    Raises:
        ValueError: successes not in [0, trials], or no trial.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"successes must lie in [0, trials] and trials be >= 1, got {successes} of {trials}")
    found = binomtest(successes, trials).proportion_ci(method="wilson")
    return Interval(successes / trials, float(found.low), float(found.high))
