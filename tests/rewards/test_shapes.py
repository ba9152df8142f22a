"""The five reward shapes, with the values that the study states, and the laws between them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.shapes import SHAPES, AnswerProperties, score


def answer(kind: str, *, formatted: bool = False, repeats: bool = False, steepness: int = 1) -> AnswerProperties:
    feasible, optimal, quality = {
        "optimal": (True, True, 1.0),
        "worse": (True, False, 0.5),
        "infeasible": (False, False, 0.0),
    }[kind]
    return AnswerProperties(feasible, optimal, quality, steepness, formatted, repeats)


@pytest.mark.parametrize(
    ("shape", "optimal", "worse", "worse_tour", "infeasible", "formatted", "repeats"),
    [
        ("binary", 1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        ("binary_format", 1.0, 0.0, 0.0, 0.0, 0.5, 0.0),
        ("binary_format_repeat", 1.0, 0.0, 0.0, 0.0, 0.5, -0.5),
        ("ratio_quality_format_repeat", 1.0, 0.25, 0.25, 0.0, 0.5, -0.5),
        ("complicated", 2.0, 0.25, 0.125, -1.0, 1.0, -1.0),
    ],
)
def test_each_shape_pays_what_the_study_states(shape, optimal, worse, worse_tour, infeasible, formatted, repeats):
    assert score(answer("optimal"), shape) == optimal
    assert score(answer("worse"), shape) == worse
    assert score(answer("worse", steepness=2), shape) == worse_tour
    assert score(answer("infeasible"), shape) == infeasible
    for kind in ("optimal", "worse", "infeasible"):
        plain = score(answer(kind), shape)
        assert score(answer(kind, formatted=True), shape) == plain + formatted
        assert score(answer(kind, repeats=True), shape) == plain + repeats
        assert score(answer(kind, formatted=True, repeats=True), shape) == plain + formatted + repeats


@pytest.mark.slow
@settings(deadline=None)
@given(st.sampled_from(sorted(SHAPES)), st.floats(0, 1), st.floats(0, 1), st.booleans(), st.booleans())
def test_a_better_answer_is_never_worth_less(shape, low, high, formatted, repeats):
    low, high = sorted((low, high))
    answers = [
        AnswerProperties(False, False, 0.0, 2, formatted, repeats),
        AnswerProperties(True, False, low, 2, formatted, repeats),
        AnswerProperties(True, False, high, 2, formatted, repeats),
        AnswerProperties(True, True, 1.0, 2, formatted, repeats),
    ]
    scores = [score(one, shape) for one in answers]
    assert scores == sorted(scores)
