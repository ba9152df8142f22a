"""The closed loop's mathematics, and anchors that survive a checkpoint."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.safety.anchors import AnchorError, Anchors, spread
from workers.safety.levels import LevelError, SkillLevel, floors, holds, largest_share, lines, slack
from workers.solution_store import StoredSolution

numbers = st.floats(-10, 10)
NAMES = ["write", "sql"]
SOLUTIONS = [StoredSolution([1, number], [2], [1]) for number in range(20)]


def test_the_slack_is_what_is_left_of_epsilon():
    assert slack(0.05, SkillLevel(-0.5), SkillLevel(-0.5)) == 0.05
    assert slack(0.05, SkillLevel(-0.5), SkillLevel(-0.53)) == pytest.approx(0.02)
    assert slack(0.05, SkillLevel(-0.5), SkillLevel(-0.6)) == pytest.approx(-0.05)  # pushed back
    assert slack(0.05, SkillLevel(-0.5), SkillLevel(-0.4)) == pytest.approx(0.15)  # freedom


def test_a_drift_within_the_standard_error_does_not_count():
    assert slack(0.0, SkillLevel(0.8, 0.03), SkillLevel(0.75, 0.04)) == pytest.approx(0.0)
    assert slack(0.0, SkillLevel(0.8, 0.03), SkillLevel(0.7, 0.04)) == pytest.approx(-0.05)
    assert slack(0.0, SkillLevel(0.7, 0.03), SkillLevel(0.8, 0.04)) == pytest.approx(0.05)
    assert slack(0.1, SkillLevel(0.8, math.inf), SkillLevel(0.2)) == 0.1


@pytest.mark.parametrize("unknown", [math.nan, -math.inf])
def test_an_unknown_level_leaves_epsilon(unknown: float):
    assert slack(0.1, SkillLevel(-0.5), SkillLevel(unknown)) == slack(0.1, SkillLevel(unknown), SkillLevel(-0.5)) == 0.1


@pytest.mark.slow
@given(numbers, numbers, st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_steps_that_use_their_slack_end_on_the_line_whatever_came_before(epsilon, anchor, drifts):
    level = anchor
    for drift in drifts:  # a step may do anything, the next one that uses its slack ends on the line
        level += drift
        level -= slack(epsilon, SkillLevel(anchor), SkillLevel(level))
        assert level == pytest.approx(anchor - epsilon, abs=1e-9)


@pytest.mark.slow
@given(st.floats(0, 5), numbers, numbers)
def test_the_level_before_a_step_always_satisfies_its_floor(epsilon, anchor, before):
    line = lines([epsilon], [anchor], [before], NAMES[:1])
    (floor,) = floors(line, [before])
    assert holds([before], [floor])
    assert floor <= anchor - epsilon == line[0]


def test_a_level_that_was_lost_already_keeps_its_line_and_lowers_only_the_floor():
    promised = lines([0.1], [-0.5], [-0.9], NAMES[:1])
    assert promised == [pytest.approx(-0.6)]
    assert floors(promised, [-0.9]) == [-0.9]


@pytest.mark.parametrize("damaged", [-math.inf, math.inf])
def test_a_first_step_whose_level_is_not_finite_is_an_error_and_no_set_is_none(damaged: float):
    with pytest.raises(LevelError, match=r"the anchor set of write is -?inf before the step"):
        lines([0.1], [damaged], [damaged], NAMES[:1])
    assert lines([0.1], [math.nan], [math.nan], NAMES[:1]) == [-math.inf]


def test_lines_of_an_anchor_that_was_not_taken_yet_hold_for_anything():
    found = lines([0.1, 0.1], [math.nan, -0.5], [math.nan, -0.5], NAMES)
    assert found == [-math.inf, pytest.approx(-0.6)]
    assert holds([math.nan, -0.6], found)
    assert not holds([0.0, math.nan], found)
    assert not holds([0.0, -0.61], found)


def test_a_constraint_without_an_anchor_set_has_no_line_and_undoes_no_step():
    """One from rollouts beside one from solutions: its anchor is a reward, which no step verifies."""
    found = lines([0.1, 0.1], [0.7, -0.5], [math.nan, -0.5], NAMES)
    assert found == [-math.inf, pytest.approx(-0.6)]
    assert holds([math.nan, -0.5], found)


def test_a_level_that_is_damaged_before_the_step_is_an_error_and_no_free_line():
    with pytest.raises(LevelError, match=r"the anchor set of sql is -inf before the step, and was -0.5 when"):
        lines([0.1, 0.1], [math.nan, -0.5], [math.nan, -math.inf], NAMES)


@pytest.mark.slow
@given(st.floats(0, 0.999), st.integers(0, 12))
def test_bisection_finds_the_share_up_to_its_last_halving_and_never_one_that_fails(limit, tries):
    share = largest_share(lambda each: each <= limit, tries)
    assert share <= limit < share + 2.0**-tries + 1e-12


def test_an_anchor_is_frozen_once_and_its_first_known_level_stays():
    anchors = Anchors()
    assert anchors.of("a").solutions == ()
    assert anchors.freeze("a", SOLUTIONS, 4).solutions == (SOLUTIONS[0], SOLUTIONS[5], SOLUTIONS[10], SOLUTIONS[15])
    anchors.freeze("a", SOLUTIONS[:1], 4)
    for value in (math.nan, -0.5, -0.7):
        anchors.measured("a", SkillLevel(value))
    assert anchors.of("a").level == SkillLevel(-0.5)
    restored = Anchors()
    restored.restore(json.loads(json.dumps(anchors.state())))
    assert restored.of("a") == anchors.of("a")
    restored.forget(["a", "b"])
    assert restored.of("a").level is None


def test_a_damaged_anchor_is_refused():
    with pytest.raises(AnchorError, match="anchor of a has level nan: it is damaged"):
        Anchors().restore({"a": {"level": [math.nan, 0.0], "solutions": []}})


@pytest.mark.parametrize(("count", "size"), [(0, 16), (3, 16), (20, 16), (20, 1)])
def test_an_anchor_set_is_spread_evenly_and_without_repetition(count: int, size: int):
    chosen = spread(SOLUTIONS[:count], size)
    assert len(chosen) == len({tuple(each.prompt) for each in chosen}) == min(count, size)
