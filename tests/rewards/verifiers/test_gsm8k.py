"""Verifier `gsm8k`: the number counts, not its spelling, and the whole response is searched for it."""

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import rewards
from rewards import compute_score
from rewards.sandbox import RunResult
from rewards.verifiers import gsm8k
from rewards.verifiers.gsm8k import Gsm8kTruth, last_number, marked_number
from rewards.verifiers.math_verify_driver import is_equal


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
        ("4.2e1", "42"),
        ("42e3", "42000"),
        ("420E-1", "42"),
        ("1,234.5e2", "123450"),
        ("42%", "42"),
        ("42!", "42"),
        ("42, as it was", "42"),
        ("42 - that is all", "42"),
        ("42 times a day", "42"),
        ("42 over all two weeks", "42"),
        ("42-year-old", "42"),
        ("42 (forty-two)", "42"),
        ("42/hour", "42"),
        ("42 / day", "42"),
        ("42 * rounded", "42"),
        ("\\$42", "42"),
        ("€42", "42"),
        ("42\\text{ cm}", "42"),
        ("0.50", "0.5"),
        ("9" * 5000, "9" * 5000),
    ],
)
async def test_equal_numbers_are_equal_however_they_are_written(written, value):
    assert await error_of(f"so\n#### {written}", value) == "none"
    assert await error_of(f"the answer is {written}", value, gsm8k_extraction="flexible") == "none"


@pytest.mark.parametrize(
    "written", ["43", "-42", "420", "42.5", "41.999999999999999999", "0.42", "42e3", "42e1", "4.2", "42,000"]
)
async def test_other_numbers_are_wrong(written):
    assert await error_of(f"#### {written}", "42") == "wrong_answer"


@pytest.mark.parametrize(
    "written",
    [
        *(
            "42 - 21",
            "42/7",
            "42 / 7",
            "42*2",
            "42 * 2",
            "42**2",
            "42^2",
            "42+1",
            "42 + 1",
            "42 × 2",
            "42 ÷ 2",
            "42−21",
        ),
        *("42 – 21", "42 x 7", "42(2)", "42²", "42 % 5", "42 mod 5", "42 times 2", "42 plus 1", "42 minus 1"),
        *(
            "42 over 2",
            "42 divided by 2",
            "42 = 42",
            "42 == 42",
            "42 < 43",
            "42 or 43",
            "42 and 43",
            "42, 43",
            "42; 43",
        ),
        *(
            "42 to 43",
            "42-43",
            "42|43",
            "42:30",
            "42 1/2",
            "4 2",
            "4,2",
            "42.5.1",
            "42\\times 2",
            "42 \\cdot 2",
            "42\\frac12",
        ),
        *(
            "42 - $21",
            "42 - (21)",
            "**42** - 21",
            "$42 + $1",
            "42 & 43",
            "42 ± 1",
            "42e999999999",
            "42e-401",
            "42 ~ 43",
        ),
        *(
            "42√2",
            "42 √",
            "42π",
            "42 π",
            "42½",
            "42 minus two",
            "42 times Three",
            "42 divided by two",
            "42 over a half",
        ),
        *("the 42", "", "x = 42", "(42)", "√42", "forty-two"),
        *("42 × ten", "42 * two", "42 / one half", "42 negative", "42 doubled", "42 tens", "42 hundreds"),
    ],
)
def test_an_expression_or_a_list_after_the_mark_is_no_number(written):
    assert marked_number(f"#### 42\n#### {written}") is None


@pytest.mark.parametrize(
    "response", ["4２", "84/2", "so 6 * 7", "84 / $2", "50-8", "(50) - 8", "2^42", "6×42", "6 + 42", "√42", "∛ 42"]
)
def test_the_right_side_of_an_operation_is_no_last_number(response):
    assert last_number(response) is None


def test_only_the_line_of_the_mark_is_read():
    assert marked_number("#### 42\n- 21\n* 3") == marked_number("#### 42 apples - all of them") == "42"


@pytest.mark.parametrize("exponent", ["0", "400", "+400", "-400", "0000000000000000003"])
def test_exponents_within_their_bound_are_values(exponent):
    number = marked_number(f"#### 12.5e{exponent}")
    assert number is not None
    assert Fraction(number) == Fraction(25, 2) * Fraction(10) ** int(exponent)


@pytest.mark.parametrize(
    ("response", "strict", "flexible"),
    [
        ("#### 42" + " and so on" * 1000, "42", "42"),
        ("#### 41\nno\n#### 42\nI am 99 percent sure", "42", "99"),
        ("#### 42 #### none", None, "42"),
        ("#### 42\n#### 43", "43", "43"),
        ("so 84/2 = 42", None, "42"),
        ("covid-19", None, "19"),
        ("1,234,567,8901", None, "8901"),
        ("######## 42", "42", "42"),
        ("#### the answer is 42", None, "42"),
        ("42", None, "42"),
        ("10-5", None, None),
        ("x-5", None, "5"),
        ("it fell to -5 degrees", None, "-5"),
        ("(10)-5", None, None),
        ("3,4,5", None, "5"),
        ("no number", None, None),
        ("#" * 60_000, None, None),
        ("1" + ",234" * 15_000 + "5", None, "2345"),
        ("####" + " " * 60_000, None, None),
    ],
)
def test_the_last_number_and_the_last_marked_number(response, strict, flexible):
    assert marked_number(response) == strict
    assert last_number(response) == flexible


@pytest.mark.slow  # the library takes seconds to import
@pytest.mark.parametrize(
    ("response", "error"),
    [("so $\\boxed{\\frac{84}{2}}$", "none"), ("it is 43", "wrong_answer"), ("#### 10**(7+10**9)", "timeout")],
)
async def test_math_verify_reads_expressions_and_is_killed_where_it_never_ends(monkeypatch, response, error):
    pytest.importorskip("math_verify")
    if error == "timeout":
        monkeypatch.setattr(gsm8k, "_IMPORT_SECONDS", 4.0)  # of processor time, all of which it takes
    assert await error_of(response, "42", gsm8k_extraction="math_verify", timeout=1.0) == error


RIGHT = [
    *(r"\boxed{42}", r"\boxed{x=42}", r"\boxed{6*7=42}", r"\boxed{42\text{ apples}}", r"\boxed{\$42}", r"\boxed{84/2}"),
    *(
        "84/2 = 42",
        "so 6 * 7 = 42",
        "the answer is 42.",
        "it is 42, as 7 * 6",
        "x = 42",
        r"\boxed{a=b=42}",
        r"\boxed{(42)}",
    ),
    *("first 41, no: 42 apples", "Total: 40 + 2 = 42", r"$x = 42$", "She sold 48/2 = 24 clips in May. 24 + 18 = 42"),
]
WRONG = [
    *(
        r"\boxed{41=42}",
        r"\boxed{43=42=42}",
        r"\boxed{6\times 7=42=43}",
        r"\boxed{2=x=42}",
        r"\boxed{x+1=42}",
        "$41=42$",
    ),
    *(r"\boxed{41} and \boxed{42}", r"\boxed{41}\boxed{42}", r"\boxed{41 \text{ or } 42}", r"\boxed{\{41,42\}}"),
    *(
        r"\boxed{[41,42]}",
        r"\boxed{41\to 42}",
        r"\boxed{41\neq 42}",
        r"\boxed{\pm 42}",
        r"\boxed{42<43}",
        "41=42",
        "42 = 43",
    ),
    *("41 or 42", "it is 41 or 42", "42 or 43", "41 and 42", "41, 42", "41/42", "41 - 42", "40 + 1 = 42", "7 * 7 = 42"),
    *("7 * 7 = 6 * 7 = 42", "so the final answer is 41 = 42", "43"),
]


@pytest.mark.slow  # the library takes seconds to import
@pytest.mark.parametrize(("responses", "right"), [(RIGHT, True), (WRONG, False)])
def test_math_verify_takes_one_value_and_no_false_equation(responses, right):
    pytest.importorskip("math_verify")
    assert [one for one in responses if bool(is_equal(one, "42")) is not right] == []


@pytest.mark.slow  # the library takes seconds to import
@pytest.mark.parametrize(
    ("truth", "right", "wrong"),
    [
        (r"x<2", ["2>x", "x < 4/2", "2x<4"], ["x>2", "-x<-2", r"x \le 2", "y<2", "x<3", "x^2<2", "2", "x<2=2"]),
        (r"-3 \le x \le 2", [r"2\geq x\geq -3"], [r"-3\leq x", r"-3\leq x<2", r"-3\leq x\leq 2\leq 5"]),
        (r"x\neq 2", [r"2 \ne x"], ["x=2", r"x \ne 3", r"y \ne 2"]),
        ("y = 2x + 3", ["2x - y + 3 = 0", "y = 3 + 2x"], ["2x - y = 3", "x = 2y + 3", "y+1=2x+3", "z=2x+3"]),
        ("x^2+y^2=25", ["y^2+x^2=25"], ["x^2+y^2=24", "x^2+z^2=25", "25=25", r"x^2+y^2\le 25"]),
        ("x=5", ["5=x", "x=10/2", "5"], ["y=5", "x+1=5", "x=5=6", "3=x=5", "5=5", "x^2=25"]),
    ],
)  # fmt: skip
def test_a_relation_is_right_if_it_says_the_same_in_another_way(truth, right, wrong):
    pytest.importorskip("math_verify")
    assert [one for one in right if not is_equal(rf"\boxed{{{one}}}", f"${truth}$")] == []
    assert [one for one in wrong if is_equal(rf"\boxed{{{one}}}", f"${truth}$")] == []


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


@pytest.mark.parametrize(
    ("response", "is_asked"),
    [
        *((huge, False) for huge in (r"\boxed{9^{9^{9}}}", "10**10**10", "10**(10 ** 10)", "9^9^9", "2^{123456}")),
        *((huge, False) for huge in (r"\boxed{99999!}", r"\boxed{(9!)!}", "$2^{99999}$")),
        *((small, True) for small in (r"\boxed{2^{10}}", r"\boxed{(2^3)^2}", r"\boxed{10!}", "It is 12345! So 84/2")),
        *((small, True) for small in (r"\boxed{e^{x^2}+1}", "7^{2019}", "x^2 y^3", "x^2+3^2")),
    ],
)
async def test_math_verify_is_not_asked_about_huge_powers_and_factorials(monkeypatch, response, is_asked):
    asked = []

    async def run(self, code, *, stdin, **_):
        asked.append(stdin)
        return RunResult("passed", stdout="true")

    monkeypatch.setattr("rewards.sandbox.Sandbox.run", run)
    assert await error_of(response, "42", gsm8k_extraction="math_verify") == ("none" if is_asked else "extract")
    assert bool(asked) is is_asked


async def test_a_sandbox_without_math_verify_masks_the_answer(monkeypatch):
    async def run(*_, **__):
        return RunResult("runtime_error", stderr="math-verify is not installed where the sandbox runs", return_code=1)

    monkeypatch.setattr(rewards, "_logged_failures", set())
    monkeypatch.setattr("rewards.sandbox.Sandbox.run", run)
    assert await error_of("84 / 2", "42", gsm8k_extraction="math_verify") == "infrastructure"


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(), st.integers(0, 9))
def test_separators_and_zeros_do_not_matter(number, zeros):
    assert marked_number(f"#### {number:,}.{'0' * (zeros + 1)}") == marked_number(f"####{number}") == str(number)


@pytest.mark.parametrize("answer", ["", "forty", "1,2345", "1/2", "42 apples"])
def test_the_expected_answer_is_a_number(answer):
    with pytest.raises(ValidationError):
        Gsm8kTruth(answer=answer)


@pytest.mark.parametrize(
    "written",
    [
        "42 thousand", "42k", "42 k", "42K", "42M", "42½", "42²", "42_000", "42’000", "42\u00a0000", "42 (or 43)",
        "42, or 43", "42 vs 43", r"42 \text{ or } 43", r"42\ 43", "42 -> 43", "42 choose 2", "42 squared", "42 [43]",
        "42 # 43", "42 million dollars", "42 or forty-three", "42 - two", "42 pens or fifty", "42 apples and a half",
        "42 half", "42x^2", "42 x²", "42 in 3 or 4 days", "42 or in 43", "42 in 3, 43", "42 perhaps 43", "42 in 3*2",
        "42 cm^22", "42 and a half", "42 forty-thousand", "42 mil", "42 lakh", "42 minus two",
    ],
)  # fmt: skip
def test_what_makes_another_number_of_it_is_no_unit(written: str) -> None:
    assert marked_number(f"#### {written}") is None


@pytest.mark.parametrize(
    "written",
    [
        "42 cm²",
        "42 m^2",
        "42\\text{ ft}^3",
        "42 dozen",
        "42 in 3 days",
        "42 cups of 3 kinds",
        "42 quarter-pounds",
        "42 is the score",
        "42 - that is all",
        "42m",
        "42 km",
        "42%",
        "42 books left.",
        "**42**",
        "42 miles per hour",
        "$42.00",
    ],
)
def test_a_unit_may_follow_the_marked_number(written: str) -> None:
    assert marked_number(f"#### {written}") == "42"
