"""Time limits for the replays of an answer."""

from hypothesis import given
from hypothesis import strategies as st

from rewards.counterfactual.judging import limit_after


@given(st.floats(0, 100))
def test_the_limit_of_replays_is_a_small_multiple_of_the_answers_time(seconds):
    assert max(0.5, 4 * seconds) <= limit_after(seconds) <= max(0.5, 8 * seconds)
