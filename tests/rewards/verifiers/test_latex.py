"""Verifier `latex`: one final answer counts, equal in value; several at once are none."""

import json

import pytest

from rewards import compute_score
from rewards.verifiers.latex import final_answer, spelling


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("so \\boxed{41}, no, $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}"),
        ("\\boxed{ 42 }", "42"),
        ("Answer: 41\nAnswer: $42$.", "42"),
        ("\\boxed{41}\nThe answer: **42**", "42"),
        ("Answer: 41\n\\boxed{42}", "42"),
        ("Answer: \\boxed{42} it is", "42"),
        ("\\boxed{42", None),
        ("\\boxed{}", None),
        ("Answer:", None),
        ("the answer is 42", None),
        ("\\boxed{" * 8_000, None),
        ("\\boxed{42}" + " " * 70_000, None),
    ],
)
def test_the_last_box_or_answer_line_is_read(response, answer):
    assert final_answer(response) == answer


def test_spelling_ignores_layout_only():
    assert spelling("\\left( \\dfrac{1}{2},\\, 3\\right)") == spelling("(\\frac{1}{2},3)")
    assert spelling("x^2") != spelling("x_2")


async def error_of(response: str, answer: str) -> object:
    return (await compute_score("latex", response, json.dumps({"answer": answer})))["error"]


@pytest.mark.parametrize(
    "written",
    ["42 or 43", "42\\text{ or }43", "42\\text{ (43)}", "42; 43", "42 | 43", "42 \\lor 43", "42\n43", "42?"],
)
async def test_an_answer_that_leaves_a_choice_is_wrong(written):
    assert await error_of(f"\\boxed{{{written}}}", "42") == "wrong_answer"
    assert await error_of(f"\\boxed{{{written}}}", written) == "none"


@pytest.mark.slow  # the library takes seconds to import
@pytest.mark.parametrize(
    ("written", "expected", "error"),
    [
        ("\\frac{84}{2}", "42", "none"),
        ("42\\text{ cm}", "42", "none"),
        ("3\\pi", "\\pi \\cdot 3", "none"),
        ("42, 43", "42", "wrong_answer"),
        ("41 = 42", "42", "wrong_answer"),
        ("(2, 1)", "(1, 2)", "wrong_answer"),
    ],
)
async def test_values_are_compared_by_math_verify(written, expected, error):
    pytest.importorskip("math_verify")
    assert await error_of(f"\\boxed{{{written}}}", expected) == error
