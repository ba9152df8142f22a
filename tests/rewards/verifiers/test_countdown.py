"""Verifier `countdown`: exact arithmetic, every number once, and none of the public scorer's holes."""

import json
import operator
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from data_prep.sources.countdown import countdown_fields
from rewards import compute_score
from rewards.verifiers.countdown import CountdownTruth, evaluate, parse

TRUTH = json.dumps({"numbers": [3, 5, 7, 7], "target": 64})


async def judged(expression, truth=TRUTH, **settings):
    response = f"<think>\nlet me try\n</think>\n<answer>{expression}</answer>"
    result = await compute_score("countdown", response, truth, **settings)
    return result["score"], result["error"]


@pytest.mark.parametrize(
    "expression",
    ["7*7+3*5", " (7 * 7) + (5 * 3)\n", "7×7+3×5", "3*5--7*7", "7*7−-3*5"],  # noqa: RUF100
)
async def test_any_expression_with_the_numbers_and_the_value_is_right(expression):
    assert await judged(expression) == (1.0, "none")


async def test_the_prompt_asks_for_the_thinking_part_and_a_copy_of_it_earns_nothing():
    prompt = countdown_fields([3, 5, 7, 7], 64, "7*7+3*5")["prompt"]
    assert "Begin with a line <think>, reason, close it with </think>, then answer." in prompt
    for response in (prompt, prompt * 3):
        result = await compute_score("countdown", response, TRUTH)
        assert (result["score"], result["error"]) == (0.0, "syntax")


@pytest.mark.parametrize("expression", ["64", "7*7+5*3+0", "7*7*1+5*3", "77-13", "8*8", "7*7+3*5*7/7", "-(-64)"])
async def test_the_right_value_of_other_numbers_earns_its_format_alone(expression):
    assert await judged(expression) == (0.1, "infeasible")
    assert await judged(expression, partial_credit=False) == (0.0, "infeasible")


async def test_partial_scores_are_the_runs_choice():
    assert await judged("7+7+3+5") == (0.2, "wrong_answer")
    assert await judged("7+7+3+5", countdown_numbers=0.25) == (0.25, "wrong_answer")
    assert await judged("7+7", countdown_format=0.05) == (0.05, "infeasible")
    assert await judged("7+7+3+5", partial_credit=False, countdown_numbers=0.25) == (0.0, "wrong_answer")


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "64//1",
        "7.0*7+3*5",
        "0x40",
        "6_4",
        "007*7",
        "7*7+3*5=64",
        "7*7+3*5 # yes",
        "7*7)+(3*5",
        "7 7 3 5",
        "+",
        "()",
        "7(7)",
        "abs(7)",
        "7*7,3*5",
        "７*7+3*5",
        "__import__('os')",
        "(" * 250 + "1",
        "1+" * 200 + "1",
        "-" * 256,
        "",
    ],
)
async def test_what_is_no_expression_is_a_syntax_error(expression):
    assert await judged(expression) == (0.0, "syntax")


async def test_a_division_by_zero_has_no_value():
    assert await judged("(3+5)/(7-7)") == (0.1, "runtime")


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ("7*7+3*5", "extract"),
        ("<answer>7*7+3*5", "extract"),
        ("7*7+3*5</answer>", "extract"),
        ("<think>\n<answer>7*7+3*5</answer>", "extract"),
        ("<think>\n<answer>7*7+3*5</answer></think> sorry", "extract"),
        ("<answer>7*7+3*5</answer> no: <answer>7+7</answer>", "infeasible"),
        ("<answer>7+7</answer> no: <answer>7*7+3*5</answer>\nThat is it.", "none"),
    ],
)
async def test_the_last_answer_after_the_thinking_counts(response, error):
    assert (await compute_score("countdown", response, TRUTH))["error"] == error


def joined(parts):
    """An expression with its value (None if it divides by zero) and its numbers, joined from two such expressions."""
    (left, left_value, left_numbers), sign, (right, right_value, right_numbers) = parts
    value = None
    if left_value is not None and right_value is not None and not (sign == "/" and right_value == 0):
        value = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[sign](
            left_value, right_value
        )
    return f"({left}{sign}{right})", value, left_numbers + right_numbers


EXPRESSIONS = st.recursive(
    st.integers(0, 20).map(lambda number: (str(number), Fraction(number), [number])),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(joined),
    max_leaves=12,
)


@pytest.mark.slow
@settings(deadline=None)
@given(EXPRESSIONS)
def test_values_are_exact_and_every_number_is_seen(expression):
    text, value, numbers = expression
    seen: list[int] = []
    tree = parse(text)
    assert tree is not None
    if value is None:
        with pytest.raises(ZeroDivisionError):
            evaluate(tree, seen)
    else:
        assert evaluate(tree, seen) == value
        assert seen == numbers


def test_thirds_are_exact():
    tree = parse("8/(3-8/3)")
    assert tree is not None
    assert evaluate(tree, []) == 24


@pytest.mark.parametrize("truth", [{"numbers": [], "target": 1}, {"numbers": [1.5], "target": 1}, {"numbers": [1]}])
def test_a_problem_has_whole_numbers_and_a_target(truth):
    with pytest.raises(ValidationError):
        CountdownTruth.model_validate(truth)
