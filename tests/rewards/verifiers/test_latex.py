"""Verifier `latex`: one final answer counts, equal in value; several at once are none."""

import json
from fractions import Fraction

import pytest

from rewards import compute_score
from rewards.verifiers import latex
from rewards.verifiers.latex import final_answer
from rewards.verifiers.latex_forms import equal, is_open, rational, spelling


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("so \\boxed{41}, no, $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}"),
        ("\\boxed{ 42 }", "42"),
        ("Answer: 41\nAnswer: $42$.", "42"),
        ("\\boxed{41}\nThe answer: **42**", "41"),
        ("\\boxed 42$.", "42"),
        ("\\boxed {42}", "42"),
        ("\\fbox{42}", "42"),
        ("\\boxedx{42}", None),
        ("**Answer:**\n\n$42$", "42"),
        ("Answer:\n\\boxed{42}", "42"),
        ("Answer:\nnot 42", "not 42"),
        ("Answer: 41\n\\boxed{42}", "42"),
        ("Answer: \\boxed{42} it is", "42"),
        ("\\boxed{42", None),
        ("\\boxed{}", None),
        ("\\boxed{\\left\\{ x \\right.} so", "\\left\\{ x \\right."),
        ("\\boxed{a \\\\} so", "a \\\\"),
        ("Answer: .5", ".5"),
        ("Answer: $.5$.", ".5"),
        ("Answer:", None),
        ("the answer is 42", None),
        ("\\boxed{" * 8_000, None),
        ("\\boxed{42}" + " " * 70_000, None),
    ],
)
def test_the_last_box_or_answer_line_is_read(response, answer):
    assert final_answer(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("\\boxed{41}\nAnswer:\n42", "42"),
        ("\\boxed{41}\nAnswer: see above", "see above"),
        ("\\boxed{42}\nAnswer: **", "42"),
        ("Answer: 41\n\\boxed{42}", "42"),
    ],
)
def test_an_answer_line_after_the_box_counts_where_the_row_says_so(response, answer):
    assert final_answer(response, answer_line=True) == answer


def test_spelling_ignores_layout_only():
    assert spelling("\\left( \\dfrac{1}{2},\\, 3\\right)") == spelling("(\\frac{1}{2},3)")
    assert spelling("x^2") != spelling("x_2")
    assert spelling("x^{2}\\cdot\\pi+\\sqrt3") == spelling("x^2\\pi + \\sqrt{3}")
    assert spelling("(1,~2)") == spelling("(1, 2)")
    assert spelling("3~4") != spelling("34")
    assert spelling("3 \\cdot 4") != spelling("34")
    assert spelling("-3 \\leq x \\neq a") == spelling("-3\\le x\\ne a")
    assert spelling("x \\geq a") == spelling("x\\ge a") != spelling("x \\le a")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1,234", 1234), ("1{,}234.50", "1234.5"), ("1,\\!234", 1234), ("-\\frac{3}{6}", "-1/2"), ("\\dfrac12", "1/2"),
        ("−3/4", "-3/4"), ("\\frac{-1}{2}", "-1/2"), (".5", "1/2"), ("$7$", 7),
    ],
)  # fmt: skip
def test_numbers_are_read_by_value(written, value):
    assert rational(written) == Fraction(value)


@pytest.mark.parametrize("written", ["1, 234", "12,34", "3 1/4", "1 234", "1/0", "\\frac{1}{0}", "1e5", "10**10", "٤٢",
                                     "4²", "", "(3)", "9" * 5_000, "1/" + "0" * 5_000])  # fmt: skip
def test_what_is_no_plain_number_is_none(written):
    assert rational(written) is None


@pytest.mark.parametrize(
    ("answer", "truth", "verdict"),
    [
        ("x = 42", "42", True), ("42\\text{ cm}^2", "42", True), ("42^\\circ", "42", True), ("\\$42", "42", True),
        ("f(x) = x^2", "x^2", True), ("x \\in [1, 2)", "[1,2)", True), ("x = 41", "42", False),
        ("42\\text{ m}", "42\\text{ cm}", False), ("42\\text{ 43}", "42", None), ("41 = 42", "42", None),
        ("x \\ne 42", "42", None), ("x == 42", "42", None),
        ("(2, 1)", "(1, 2)", False), ("2, 1", "1, 2", True), ("\\{2, 1\\}", "\\{1,2\\}", True),
        ("1, 2, 2", "1, 2", False),
        ("(1, 2]", "[1, 2]", None), ("(\\frac{2}{4}, 0)", "(0.5, 0)", True),
        ("B", "\\text{(B)}", True), ("\\textbf{(B)}", "\\text{B}", True), ("b", "\\text{(B)}", False),
        ("Friday", "\\text{Tuesday}", False), ("EVEN", "\\text{even}", True), ("2", "\\text{two}", None),
        ("0.333333", "\\frac13", None), ("0.25", "\\frac13", False), ("25\\%", "\\frac14", None), ("25\\%", "25", True),
        ("3\\text{ minutes}", "3\\text{ hours}", False), ("3\\text{ hrs}", "3\\text{ hours}", True),
        ("5\\text{ cm}^2", "5\\text{ cm}", False), ("5\\text{ square meters}", "5\\mathrm{ m}^2", True),
        ("120\\text{ degrees}", "120^\\circ", True), ("20\\text{ radians}", "20^\\circ", False),
        ("5\\text{ ways}", "5\\text{ different ways}", None), ("\\$5", "5\\text{ dollars}", True),
        ("\\$5", "5\\text{ cents}", False),
        ("\\{1, 2\\}", "(1, 2)", False), ("(1,2)", "\\{1,2\\}", False), ("1,2", "\\{1,2\\}", None),
        ("2,1", "(1,2)", False), ("1,2", "(1,2)", None), ("2,1", "1,2", True), ("2,3", "1,2", False),
        ("3 1/4", "31/4", False), ("4 2", "42", False), ("4\\, 2", "42", False), ("3 125/4", "3125/4", False),
        ("1 000", "1000", True), ("10\\,080", "10080", True), ("\\frac 1 2", "\\frac12", True),
        ("3 1/4", "3 1/4", True), ("1 2 345", "12345", False),
        ("y=5", "x=5", False), ("y = 5", "x = 5", False), ("x=3-y", "y=3-x", None), ("f(x)=5", "y=5", True),
        ("5~\\text{cm}", "5", True), ("5", "5~\\text{cm}", True), ("x~=~6", "5", False), ("4~2", "42", False),
        ("y=5", "5", True), ("x=5", "x=5", True), ("x=6", "x=5", False),
        ("ab", "ba", None), ("2\\sqrt{3}", "\\sqrt{12}", None),
        ("42\\text{ million}", "42", False), ("42", "42\\text{ million}", False), ("5\\text{ minus two}", "5", False),
        ("42\\text{, alternatively forty-three}", "42", False), ("42\\text{ million}", "42\\text{ million}", True),
        ("5\\text{ stones}", "5", True), ("5\\text{ tenths}", "5", True),
        ("6\\text{ PM}", "6\\text{ AM}", False), ("6\\text{ p.m.}", "6\\text{ a.m.}", False),
        ("5\\text{ north}", "5\\text{ south}", False), ("6\\text{ PM}", "6", True),
        ("41\\%, 42", "42", False), ("42, 43", "42", False), ("1,000", "1000", True), ("f(1,2)", "3", None),
        ("a", "A", False), ("x", "x", True),
        ("2\\cdot\\frac{1}{2}", "2\\frac{1}{2}", None), ("2\\cdot\\sqrt{2}", "2\\sqrt{2}", True),
    ],
)  # fmt: skip
def test_what_is_certain_is_decided_without_math_verify(answer, truth, verdict):
    assert equal(answer, truth) is verdict


@pytest.mark.parametrize("text", ["10**10**10", "10^{10^{10}}", "\\frac{" * 9_000, "(" * 60_000, "1,2" * 20_000,
                                  "\\text{" * 9_000, "x = " * 15_000, "^{" * 30_000, "٤٢", "²" * 60_000])  # fmt: skip
def test_hostile_answers_are_never_evaluated_here(text):
    assert not any(equal(text, truth) for truth in ("42", "(1, 2)", "\\text{A}"))


@pytest.mark.parametrize("written", ["(" * 300 + "1" + ")" * 300, "1+" * 300 + "1", "\\sin(" * 100 + "1" + ")" * 100])
async def test_an_answer_that_is_far_longer_than_the_expected_one_is_not_evaluated(written, monkeypatch):
    async def evaluated(*_):
        raise AssertionError("evaluated")

    monkeypatch.setattr(latex, "by_math_verify", evaluated)
    assert await error_of(f"\\boxed{{{written}}}", "42") == "wrong_answer"
    monkeypatch.undo()
    assert await error_of("\\boxed{9!!!!!!!}", "42") == "extract"


async def error_of(response: str, answer: str) -> object:
    return (await compute_score("latex", response, json.dumps({"answer": answer})))["error"]


@pytest.mark.parametrize(
    "written",
    ["42 or 43", "42\\text{ or }43", "42\\text{ (43)}", "42; 43", "42 | 43", "42 \\lor 43", "42\n43", "42?"],
)
async def test_an_answer_that_leaves_a_choice_is_wrong(written):
    assert await error_of(f"\\boxed{{{written}}}", "42") == "wrong_answer"
    assert await error_of(f"\\boxed{{{written}}}", written) == "none"


FORGED = [
    *(("42", one) for one in (
        "4\\text{ }2", "42\\textbf{3}", "42\\mathbf{3}", "4\\mathrm{ }2", "42\\mathbf{j}", "42\\mathrm{i}",
        "\\phantom{42}", "\\not 42", "43 % 42", "% 42", "\\geq 42", "> 42", "\\sim 42", "42 \\ldots", "42,\\ldots",
        "42'", "42\\text{ is wrong}", "\\text{not }42\\text{ not}", "42\\ \\text{not}", "42\\text{ at least}",
        "42\\text{ approximately}", "42\\text{ lower bound}", "42\\text{k}", "42\\,\\mathrm{k}", "42\\,\\text{M}",
        "42\\text{ doubled}", "\\gcd(84,126)", "\\lfloor 42.3 \\rfloor", "\\max(41,42)", "142 \\mod 100", "\\lim 42",
        "\\sum_{i=1}^{1} 42", "\\sum 42", "\\prod_{i=1}^1 42",
    )),
    ("\\frac12", "\\int_0^1 x dx"), ("2x", "\\frac{d}{dx} x^2"), ("2x", "\\frac{\\partial}{\\partial x} x^2"),
    ("-2", "\\begin{vmatrix}1&2\\\\3&4\\end{vmatrix}"), ("-2", "\\det\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}"),
    ("x+1", "X+1"), ("\\pi", "\\Pi"), ("C", "D = C"), ("C", "C'"), ("\\text{Yes}", "\\text{Yes}\\text{No}"),
    ("3:30", "3/30"), ("3:30", "0.1"), ("60\\text{ cm}", "60\\text{ dm}"), ("60\\text{ mph}", "60\\text{ kph}"),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "written"), FORGED)
async def test_an_answer_that_math_verify_would_misread_is_wrong(expected, written):
    assert await error_of(f"\\boxed{{{written}}}", expected) == "wrong_answer"
    assert await error_of(f"\\boxed{{{written}}}", written) == "none"


@pytest.mark.parametrize(
    ("expected", "written"),
    [
        ("\\frac12", "\\frac{1}{2}\\text{ cm}"), ("50", "50\\%"), ("50", "50 %."),
        ("[1, \\infty)", "\\left[1, \\infty\\right)"),
        ("\\max(a, b)", "\\max (a,b)"), ("f'(x)", "f' (x)"), ("3\\text{ ft }2\\text{ in}", "3\\text{ft }2\\text{in}"),
        ("x \\geq 5", "x\\ge5"), ("\\frac{d}{2}", "\\frac d2"), ("3:30", "3:30\\text{ p.m.}"),
        ("\\left\\lfloor x \\right\\rfloor", "\\lfloor x\\rfloor"), ("42", "\\mathbf{42}"), ("C", "(C)"),
        ("42\\%", "42"),
    ],
)  # fmt: skip
def test_a_clean_answer_leaves_nothing_open(expected, written):
    assert not is_open(written, expected)
    assert equal(written, expected) is not False


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


@pytest.mark.parametrize(
    ("answer", "truth", "same"),
    [
        ("101_2", "101_{2}", True),
        ("$101_{2}$", "101_2", True),
        ("101_{\\text{two}}", "101_2", True),
        ("0101_2", "101_2", True),
        ("1A_{\\text{sixteen}}", "1A_{16}", True),
        ("101_3", "101_2", False),
        ("110_2", "101_2", False),
        ("5_{10}", "101_2", False),
        ("101_{\\text{dozen}}", "101_{12}", False),
        ("101_{11}", "101_{\\text{eleven}}", True),
        ("1a_{16}", "1A_{16}", True),
        ("-101_3", "-101_2", False),
        ("1.1_3", "1.1_2", False),
        ("101_{three}", "101_2", False),
        ("101_{(3)}", "101_2", False),
        ("101_{\\text{twenty}}", "101_{\\text{eleven}}", False),
        ("101", "101_2", False),
        ("101_2", "101", False),
        ("5", "101_2", False),
        ("42", "42_{10}", True),
    ],
)
def test_numbers_in_a_base_have_equal_digits_and_an_equal_base(answer: str, truth: str, same: bool | None):
    assert equal(answer, truth) is same
