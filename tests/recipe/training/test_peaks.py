import json

import pytest

from recipe.training.protector import Peaks


def seen(*accuracies: float | None, average: float = 0.0) -> Peaks:
    peaks = Peaks(average)
    for accuracy in accuracies:
        peaks.record({"sql": accuracy})
    return peaks


def test_each_measurement_counts_as_it_is_without_an_average():
    assert seen(0.5, 0.75, 0.25).below("sql") == 0.5
    assert seen(0.5, 0.75, None).below("sql") == 0.0
    assert seen().below("sql") == 0.0


def test_a_lucky_measurement_at_the_start_is_no_peak():
    assert seen(1.0, average=0.75).best == {}
    found = seen(1.0, 0.0, 1.0, 0.0, average=0.75)
    assert found.best["sql"] == found.latest["sql"] == 0.5


def test_the_average_follows_with_the_weight_of_earlier_measurements():
    found = seen(0.5, 0.5, 0.5, 0.5, 0.1, average=0.75)
    assert found.latest["sql"] == pytest.approx(0.75 * 0.5 + 0.25 * 0.1)
    assert found.below("sql") == pytest.approx(0.1)


def test_it_continues_after_a_checkpoint_as_it_would_have_without():
    first = seen(0.2, 0.9, average=0.75)
    again = Peaks(0.75)
    again.restore(json.loads(json.dumps(first.state())))
    for peaks in (first, again):
        for accuracy in (0.4, 0.8, 0.1):
            peaks.record({"sql": accuracy})
    assert again.state() == first.state()
