"""95% confidence intervals: of a mean over few runs, of a mean over hundreds of problems or seeds, and of a share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads its parts at their first use: half a second that a run's own processes never need
from numpy.typing import ArrayLike, NDArray

_RESAMPLES = 2000
NORMAL_QUANTILE = 1.96
"""Standard errors from a mean to each end of its 95% interval, where the error is known."""

# Means of fewer runs are drawn without interval: that of two reaches 13 standard errors to each side and dwarfs others.
RUNS_OF_AN_INTERVAL = 3


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its 95% confidence interval; None for a single value, which has no interval."""

    estimate: float
    low: float | None = None
    high: float | None = None

    def text(self, decimals: int = 1, sign: str = "") -> str:
        """As ``estimate [low, high]``, or the estimate alone."""
        estimate, *ends = (
            f"{value:{sign}.{decimals}f}" for value in (self.estimate, self.low, self.high) if value is not None
        )
        return f"{estimate} [{', '.join(ends)}]" if ends else estimate

    def scaled(self, factor: float) -> "Interval":
        """The interval in another unit, such as percent for shares of 1."""
        if self.low is None or self.high is None:
            return Interval(factor * self.estimate)
        return Interval(factor * self.estimate, factor * self.low, factor * self.high)

    @property
    def bars(self) -> tuple[float, float]:
        """How far the interval reaches below and above the estimate; NaN without one."""
        if self.low is None or self.high is None:
            return math.nan, math.nan
        return self.estimate - self.low, self.high - self.estimate


def t_interval(values: ArrayLike) -> Interval:
    """Mean of independent values with Student's t interval, for small samples such as runs.

    Exact for normal values at any sample size, whereas the bootstrap covers the mean of four values in 81 of 100
    cases. It may exceed the range of the values, for example below a share of 0.

    Raises:
        ValueError: no value, or a matrix.
    """

    def ends(sample: NDArray[np.float64], mean: float) -> tuple[float, float]:
        half = float(scipy.stats.t.ppf(0.975, len(sample) - 1) * scipy.stats.sem(sample))
        return mean - half, mean + half

    return _of_mean(values, ends)


def bootstrap_interval(values: ArrayLike, seed: int = 0) -> Interval:
    """Mean of hundreds of independent values with the percentile bootstrap, which assumes nothing of their distribution
    (2000 resamples; Efron & Tibshirani 1993, chapter 13).

    Raises:
        ValueError: no value, or a matrix.
    """

    def ends(sample: NDArray[np.float64], mean: float) -> tuple[float, float]:
        rng = np.random.default_rng(seed)
        resampled = scipy.stats.bootstrap((sample,), np.mean, n_resamples=_RESAMPLES, method="percentile", rng=rng)
        return float(resampled.confidence_interval.low), float(resampled.confidence_interval.high)

    return _of_mean(values, ends)


def share_interval(successes: int, trials: int) -> Interval:
    """A share with Wilson's score interval (Wilson 1927), which stays within [0, 1] even at 0 or all successes.

    Raises:
        ValueError: successes not in [0, trials], or no trial.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"successes must lie in [0, trials] and trials be >= 1, got {successes} of {trials}")
    interval = scipy.stats.binomtest(successes, trials).proportion_ci(method="wilson")
    return Interval(successes / trials, float(interval.low), float(interval.high))


def scatter(values: Sequence[float]) -> float:
    """Standard deviation of a series around its trend, from its successive differences (von Neumann 1941); NaN below 5.

    Unlike the count of samples it knows that answers to one prompt are alike.
    """
    if len(values) < 5:
        return math.nan
    return float(np.sqrt(np.mean(np.diff(values) ** 2) / 2))


def _of_mean(values: ArrayLike, ends: Callable[[NDArray[np.float64], float], tuple[float, float]]) -> Interval:
    """The mean of values with the ends of its interval, found from the sample and the mean; none for one value."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) == 0:
        raise ValueError(f"values must be (runs,) with at least one of them, got shape {sample.shape}")
    mean = float(sample.mean())
    return Interval(mean, *ends(sample, mean)) if len(sample) > 1 else Interval(mean)
