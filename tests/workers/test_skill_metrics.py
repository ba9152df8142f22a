"""Measures of a hand-made matrix, with a skill that improves after its own stage (negative forgetting)."""

import numpy as np
import pytest

from workers.skill_metrics import (
    average,
    forgetting,
    forward_transfer,
    interference,
    seed_spread,
    split_forgetting,
    stage_ends,
    worst_skill,
)

INITIAL = [0.2, 0.1, 0.3]
ACCURACY = [
    [0.8, 0.3, 0.3],  # after stage 0, which trained skill 0
    [0.5, 0.6, 0.2],
    [0.6, 0.7, 0.9],
]


def test_average_and_worst_skill_are_those_after_the_last_stage() -> None:
    assert average(ACCURACY) == pytest.approx(2.2 / 3)
    assert worst_skill(ACCURACY) == 0.6


def test_forgetting_is_best_before_minus_last_and_may_be_negative() -> None:
    np.testing.assert_allclose(forgetting(ACCURACY, INITIAL), [0.2, -0.1, -0.6])


def test_forgetting_counts_what_the_model_could_do_before_training() -> None:
    # The first skill falls from 0.9 to 0.3 in the first stage and stays there; the second is best after that stage.
    np.testing.assert_allclose(forgetting([[0.3, 0.8], [0.3, 0.5]], [0.9, 0.7]), [0.6, 0.3])
    np.testing.assert_allclose(forgetting([[0.8, 0.3]], [0.5, 0.4]), [-0.3, 0.1])  # a single stage


def test_what_was_not_measured_is_no_peak() -> None:
    matrix = [[0.8, np.nan], [np.nan, np.nan], [0.5, 0.4]]
    np.testing.assert_allclose(forgetting(matrix, [np.nan, np.nan]), [0.3, np.nan])
    np.testing.assert_allclose(forgetting(matrix, [0.9, 0.6]), [0.4, 0.2])
    assert np.isnan(forgetting([[0.8, 0.3]], [np.nan, np.nan])).all()


def test_the_best_stage_of_one_half_is_read_on_the_other() -> None:
    """The first half is best at the start (0.9, where the second has 0.5), the second after stage 1 (0.8 and 0.6)."""
    first, second = [[0.9], [0.6], [0.7]], [[0.5], [0.8], [0.7]]
    # Chosen on the first: 0.5 - 0.7; on the second: 0.6 - 0.7. The largest mean of both halves would give 0.
    np.testing.assert_allclose(split_forgetting([first, second]), [-0.15])
    np.testing.assert_allclose(forgetting([[0.7], [0.7]], [0.7]), [0.0])


def test_noise_alone_is_no_forgetting_when_the_peak_is_read_on_the_other_half() -> None:
    """Skills at 0.5 all the time, four stages, 51 x 13 answers in two halves: the mean over 4,000 of them."""
    halves = np.random.default_rng(0).binomial(331, 0.5, size=(2, 5, 4000)) / 331
    whole = halves.mean(0)
    assert abs(split_forgetting(halves).mean()) < 0.001
    assert forgetting(whole[1:], whole[0]).mean() > 0.018


def test_a_stage_without_both_halves_is_no_choice_and_without_an_end_there_is_no_number() -> None:
    first = [[0.9, 0.5, np.nan], [0.6, 0.5, np.nan], [0.5, np.nan, 0.5]]
    second = [[np.nan, 0.5, 0.4], [0.7, 0.5, 0.4], [0.5, 0.5, 0.5]]
    np.testing.assert_allclose(split_forgetting([first, second]), [0.15, np.nan, np.nan])


def test_the_end_of_a_skills_last_stage_is_read_and_no_peak_is_chosen() -> None:
    np.testing.assert_allclose(stage_ends(ACCURACY, [[0], [1], [2]]), [0.8, 0.6, 0.9])
    np.testing.assert_allclose(stage_ends(ACCURACY, [[2], [0], [2]]), [0.5, np.nan, 0.9])


def test_forward_transfer_is_the_gain_before_the_skills_own_stage() -> None:
    np.testing.assert_allclose(forward_transfer(ACCURACY, INITIAL), [np.nan, 0.2, -0.1])
    # Stages train skills 2, 0, 2: the second stage of skill 2 does not count, skill 1 is never trained.
    np.testing.assert_allclose(forward_transfer(ACCURACY, INITIAL, trained=[[2], [0], [2]]), [0.6, np.nan, np.nan])
    # The last stage trains two skills, one of them for the second time.
    np.testing.assert_allclose(forward_transfer(ACCURACY, INITIAL, trained=[[0], [1], [1, 2]]), [np.nan, 0.2, -0.1])


def test_interference_is_the_change_of_each_stage() -> None:
    result = interference(ACCURACY, INITIAL)
    np.testing.assert_allclose(result.measured, [[0.6, 0.2, 0.0], [-0.3, 0.3, -0.1], [0.1, 0.1, 0.7]], atol=1e-12)
    assert result.predicted is None
    assert np.isnan(interference(ACCURACY).measured[0]).all()


def test_interference_correlates_prediction_and_measurement() -> None:
    measured = interference(ACCURACY, INITIAL).measured
    assert interference(ACCURACY, INITIAL, 3 * measured + 1).correlation == pytest.approx(1)
    assert interference(ACCURACY, INITIAL, -measured).correlation == pytest.approx(-1)
    assert np.isnan(interference(ACCURACY, INITIAL, np.ones((3, 3))).correlation)
    # Wrong only about each stage's own skill: this changes the plain correlation, not the one between skills.
    predicted = measured - 5 * np.eye(3)
    assert interference(ACCURACY, INITIAL, predicted).correlation < 0
    assert interference(ACCURACY, INITIAL, predicted, trained=[[0], [1], [2]]).correlation == pytest.approx(1)
    # A stage of two skills has an effect on each of its own skills.
    predicted[2, 1] -= 5
    assert interference(ACCURACY, INITIAL, predicted, trained=[[0], [1], [2]]).correlation < 0
    assert interference(ACCURACY, INITIAL, predicted, trained=[[0], [1], [1, 2]]).correlation == pytest.approx(1)


def test_seed_spread() -> None:
    spread = seed_spread([[0.5, 1.0], [0.7, 1.0], [0.9, 1.0]])
    np.testing.assert_allclose(spread.mean, [0.7, 1.0])
    np.testing.assert_allclose(spread.deviation, [0.2, 0.0], atol=1e-12)
    assert (spread.low.tolist(), spread.high.tolist()) == ([0.5, 1.0], [0.9, 1.0])
    assert np.isnan(seed_spread([0.5]).deviation)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (lambda: average([0.5, 0.6]), r"\(stages, skills\).*got shape \(2,\)"),
        (lambda: worst_skill(np.empty((0, 3))), r"got shape \(0, 3\)"),
        (lambda: forward_transfer(ACCURACY, [0.1]), r"initial must be \(3,\)"),
        (lambda: forgetting(ACCURACY, [0.1]), r"initial must be \(3,\)"),
        (lambda: forward_transfer(ACCURACY, INITIAL, [[0], [1]]), "for each of 3 stages"),
        (lambda: forward_transfer(ACCURACY, INITIAL, [[0], [1], [3]]), "some of 3 skills"),
        (lambda: forward_transfer(ACCURACY, INITIAL, [[0], [1], []]), "some of 3 skills"),
        (lambda: interference(ACCURACY, INITIAL, [[1.0]]), r"predicted must have the shape.*\(3, 3\)"),
        (lambda: seed_spread([]), "at least one seed"),
    ],
)
def test_mistakes_are_refused(measure, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure()
