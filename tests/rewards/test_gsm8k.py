"""Verifier `gsm8k`: the number counts, not how it is written, and it is looked for in the whole response."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rewards import compute_score
from rewards.gsm8k import Gsm8kTruth, last_number, marked_number


async def error_of(response, answer, **settings):
    truth = json.dumps({"answer": answer})
    return (await compute_score("gsm8k", response, truth, **settings))["error"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("42", "42"),
        ("42.0", "42"),
        ("42.", "42"),
        ("$42", "42"),
        ("+42", "42"),
        ("042", "42"),
        ("**42**", "42"),
        ("42 apples", "42"),
        ("1,234", "1234"),
        ("$1,234,567.50", "1234567.5"),
        ("-7", "-7"),
        ("-$7", "-7"),
        ("$-7", "-7"),
        ("-0", "0"),
        (".5", "0.5"),
        ("0.50", "0.5"),
        ("9" * 5000, "9" * 5000),
    ],
)
async def test_equal_numbers_are_equal_however_they_are_written(written, value):
    assert await error_of(f"so\n#### {written}", value) == "none"
    assert await error_of(f"the answer is {written}", value, gsm8k_extraction="flexible") == "none"


@pytest.mark.parametrize("written", ["43", "4,2", "-42", "420", "4 2", "42.5", "41.999999999999999999", "0.42"])
async def test_other_numbers_are_wrong(written):
    assert await error_of(f"#### {written}", "42") == "wrong_answer"


@pytest.mark.parametrize(
    ("response", "strict", "flexible"),
    [
        ("#### 42" + " and so on" * 1000, "42", "42"),
        ("#### 41\nno\n#### 42\nI am 99 percent sure", "42", "99"),
        ("#### 42 #### none", "42", "42"),
        ("######## 42", "42", "42"),
        ("#### the answer is 42", None, "42"),
        ("42", None, "42"),
        ("10-5", None, "5"),
        ("x-5", None, "5"),
        ("it fell to -5 degrees", None, "-5"),
        ("(10)-5", None, "5"),
        ("3,4,5", None, "5"),
        ("no number", None, None),
        ("#" * 60_000, None, None),
        ("####" + " " * 60_000, None, None),
    ],
)
def test_the_last_number_and_the_last_marked_number(response, strict, flexible):
    assert marked_number(response) == strict
    assert last_number(response) == flexible


@settings(deadline=None)
@given(st.integers(), st.integers(0, 9))
def test_separators_and_zeros_do_not_matter(number, zeros):
    assert marked_number(f"#### {number:,}.{'0' * (zeros + 1)}") == marked_number(f"####{number}") == str(number)


@pytest.mark.parametrize("answer", ["", "forty", "1,2345", "1/2", "42 apples"])
def test_the_expected_answer_is_a_number(answer):
    with pytest.raises(ValidationError):
        Gsm8kTruth(answer=answer)
