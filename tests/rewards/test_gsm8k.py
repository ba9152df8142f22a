"""Verifier `gsm8k`: the number counts, not how it is written, and it is looked for in the whole response."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import rewards
from rewards import compute_score
from rewards.gsm8k import Gsm8kTruth, last_number, marked_number
from rewards.sandbox import RunResult


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


@pytest.mark.slow  # the library takes seconds to import
@pytest.mark.parametrize(
    ("response", "error"),
    [("so $\\boxed{\\frac{84}{2}}$", "none"), ("it is 43", "wrong_answer"), ("#### 10**(10**10)", "timeout")],
)
async def test_math_verify_reads_expressions_and_is_killed_where_it_never_ends(response, error):
    pytest.importorskip("math_verify")
    assert await error_of(response, "42", gsm8k_extraction="math_verify", timeout=1.0) == error


async def test_math_verify_is_asked_about_what_strict_does_not_find_right_only(monkeypatch):
    asked = []

    async def run(self, code, *, stdin, **_):
        asked.append(json.loads(stdin)["response"])
        return RunResult("passed", stdout="true")

    monkeypatch.setattr("rewards.sandbox.Sandbox.run", run)
    for response in ("#### 42", "no number"):
        await error_of(response, "42", gsm8k_extraction="math_verify")
    assert asked == []
    assert await error_of("84 / 2", "42", gsm8k_extraction="math_verify") == "none"
    assert asked == ["84 / 2"]


async def test_a_sandbox_without_math_verify_masks_the_answer(monkeypatch):
    async def run(*_, **__):
        return RunResult("runtime_error", stderr="math-verify is not installed where the sandbox runs", return_code=1)

    monkeypatch.setattr(rewards, "_logged_failures", set())
    monkeypatch.setattr("rewards.sandbox.Sandbox.run", run)
    assert await error_of("84 / 2", "42", gsm8k_extraction="math_verify") == "infrastructure"


@settings(deadline=None)
@given(st.integers(), st.integers(0, 9))
def test_separators_and_zeros_do_not_matter(number, zeros):
    assert marked_number(f"#### {number:,}.{'0' * (zeros + 1)}") == marked_number(f"####{number}") == str(number)


@pytest.mark.parametrize("answer", ["", "forty", "1,2345", "1/2", "42 apples"])
def test_the_expected_answer_is_a_number(answer):
    with pytest.raises(ValidationError):
        Gsm8kTruth(answer=answer)
