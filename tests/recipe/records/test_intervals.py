"""Intervals with known values, and their coverage."""

from typing import Any

import numpy as np
import pytest

from recipe.records.intervals import Interval, bootstrap_interval, scatter, share_interval, t_interval


def near(value: float) -> Any:
    """Equal to any number within the tolerance of this one."""
    return pytest.approx(value, abs=1e-5)


def test_wilson_intervals_have_their_published_values() -> None:
    # 0 and 10 of 10, and 8 of 10 (Brown, Cai & DasGupta 2001 use the same formula).
    assert share_interval(0, 10) == Interval(0.0, 0.0, near(0.27753))
    assert share_interval(10, 10) == Interval(1.0, near(0.72247), 1.0)
    assert share_interval(8, 10) == Interval(0.8, near(0.49016), near(0.94331))


def test_the_bootstrap_interval_is_that_of_the_standard_error_for_many_values() -> None:
    values = np.random.default_rng(0).normal(3, 2, 1000)
    interval = bootstrap_interval(values)
    half = 1.96 * values.std(ddof=1) / 1000**0.5
    assert interval.estimate == pytest.approx(values.mean())
    assert (interval.low, interval.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)
    assert bootstrap_interval(values) == interval


@pytest.mark.slow
def test_the_bootstrap_covers_the_mean_in_nineteen_of_twenty_large_samples() -> None:
    rng = np.random.default_rng(1)
    assert 0.88 <= coverage(bootstrap_interval, rng.exponential(1, (100, 60)), 1) <= 0.99


@pytest.mark.parametrize("runs", [2, 4, 6])
@pytest.mark.slow
def test_the_t_interval_covers_the_mean_of_few_runs_in_nineteen_of_twenty_studies(runs: int) -> None:
    studies = np.random.default_rng(runs).normal(70, 5, (4000, runs))
    assert 0.93 <= coverage(t_interval, studies, 70) <= 0.97


def coverage(interval, samples: np.ndarray, mean: float) -> float:
    """Share of the studies (studies, values) whose interval contains the mean."""
    found = map(interval, samples)
    return float(np.mean([each.low <= mean <= each.high for each in found]))


def test_the_t_interval_has_the_quantiles_of_student() -> None:
    # t(0.975) is 2.776 with four degrees of freedom; the standard error of 1 to 5 is sqrt(2.5 / 5).
    found = t_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.estimate == 3.0
    assert found.bars == pytest.approx((2.776445 * 0.5**0.5, 2.776445 * 0.5**0.5))
    assert t_interval([2.0, 2.0]) == Interval(2.0, 2.0, 2.0)


@pytest.mark.parametrize("interval", [t_interval, bootstrap_interval])
def test_a_single_value_has_no_interval(interval) -> None:
    found = interval([2.0])
    assert found == Interval(2.0, None, None)
    assert found.text() == "2.0"
    assert found.scaled(100) == Interval(200.0)
    assert np.isnan(found.bars).all()


def test_text_and_units() -> None:
    assert Interval(1.25, -0.5, 3.0).text() == "1.2 [-0.5, 3.0]"
    assert Interval(1.0, -0.5, 3.0).text(2, "+") == "+1.00 [-0.50, +3.00]"
    assert Interval(1.0, -0.5, 3.0).scaled(100) == Interval(100.0, -50.0, 300.0)
    assert Interval(1.0, -0.5, 3.0).bars == (1.5, 2.0)


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        (lambda: t_interval([]), "at least one"),
        (lambda: bootstrap_interval([[1.0]]), r"got shape \(1, 1\)"),
        (lambda: share_interval(3, 2), "got 3 of 2"),
        (lambda: share_interval(0, 0), "got 0 of 0"),
    ],
)
def test_mistakes_are_refused(interval, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        interval()


def test_scatter_is_the_noise_around_a_trend_where_answers_to_a_prompt_are_alike():
    rng = np.random.default_rng(0)
    prompts = rng.beta(0.5, 0.5, (2000, 16))
    accuracy = rng.binomial(8, prompts).mean(1) / 8
    assert scatter(accuracy + np.linspace(0, 1, 2000)) == pytest.approx(accuracy.std(), rel=0.05)
    assert accuracy.std() > 2 * np.sqrt(0.25 / 128)
