"""Intervals with known values, and their coverage."""

import numpy as np
import pytest

from recipe.records.intervals import Interval, mean_interval, share_interval


def test_wilson_intervals_have_their_published_values() -> None:
    # 0 and 10 of 10, and 8 of 10 (Brown, Cai & DasGupta 2001 use the same formula).
    assert share_interval(0, 10) == Interval(0.0, 0.0, pytest.approx(0.27753, abs=1e-5))
    assert share_interval(10, 10) == Interval(1.0, pytest.approx(0.72247, abs=1e-5), 1.0)
    assert share_interval(8, 10) == Interval(0.8, pytest.approx(0.49016, abs=1e-5), pytest.approx(0.94331, abs=1e-5))


def test_the_bootstrap_interval_is_that_of_the_standard_error_for_many_values() -> None:
    values = np.random.default_rng(0).normal(3, 2, 1000)
    interval = mean_interval(values)
    half = 1.96 * values.std(ddof=1) / 1000**0.5
    assert interval.estimate == pytest.approx(values.mean())
    assert (interval.low, interval.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)
    assert mean_interval(values) == interval
    assert mean_interval([2.0, 2.0]) == Interval(2.0, 2.0, 2.0)


def test_it_covers_the_mean_in_nineteen_of_twenty_samples() -> None:
    rng = np.random.default_rng(1)
    intervals = [mean_interval(rng.exponential(1, 60)) for _ in range(100)]
    assert 0.88 <= np.mean([found.low <= 1 <= found.high for found in intervals]) <= 0.99


def test_text() -> None:
    assert Interval(1.25, -0.5, 3.0).text() == "1.2 [-0.5, 3.0]"
    assert Interval(1.0, -0.5, 3.0).text(2, "+") == "+1.00 [-0.50, +3.00]"


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        (lambda: mean_interval([]), "at least one seed"),
        (lambda: mean_interval([[1.0]]), r"got shape \(1, 1\)"),
        (lambda: share_interval(3, 2), "got 3 of 2"),
        (lambda: share_interval(0, 0), "got 0 of 0"),
    ],
)
def test_mistakes_are_refused(interval, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        interval()
