"""Steps of a solution: spans in order, without overlap, nested bodies too."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.counterfactual.segments import UNITS, NoSteps, segment

FENCED = "First I think.\n```python\ndef f(a):\n    if a < 4:\n        return a + 3\n    return a * 2\n```\nDone."


def texts(solution, unit, **options):
    return [solution[step.start : step.end] for step in segment(solution, unit, **options)]


def test_every_statement_is_a_step_and_a_compound_one_is_its_header():
    assert texts(FENCED, "statement") == ["def f(a):", "if a < 4:", "return a + 3", "return a * 2"]


def test_the_text_around_the_code_is_a_separate_step_on_request():
    with_text = segment(FENCED, "statement", text_steps=True)
    assert [step.kind for step in with_text] == ["text", "code", "code", "code", "code", "text"]
    assert FENCED[: with_text[0].end].endswith("```python\n")


def test_lines_are_steps_and_blank_ones_are_not():
    assert texts("```\na = 1\n\n  b = 2\n```", "line") == ["a = 1", "  b = 2"]


def test_paragraphs_take_code_and_text_alike():
    assert texts("one\nmore\n\n  \ntwo", "paragraph") == ["one\nmore", "two"]


def test_statements_on_one_line_handlers_and_cases_are_steps():
    code = "try: x = 1; y = 2\nexcept ValueError:\n z = 'é'\nmatch x:\n case 1: pass"
    assert texts(code, "statement") == ["try:", "x = 1", "y = 2", "z = 'é'", "match x:\n case 1:", "pass"]


def test_decorators_belong_to_their_function():
    assert texts("@cache\ndef f():\n return 1", "statement") == ["@cache\ndef f():", "return 1"]


def test_code_that_does_not_parse_has_its_lines():
    assert texts("def f(:\n\n return", "statement") == ["def f(:", "return"]


@pytest.mark.parametrize(
    ("solution", "reason"),
    [("", "no code"), ("   \n", "no code"), ("```sql\nSELECT 1\n```", "no code"), ("x=1\n" * 2001, "2001 steps")],
)
def test_what_has_no_steps_says_why(solution, reason):
    with pytest.raises(NoSteps, match=reason):
        segment(solution, "statement")


def test_an_unknown_unit_is_refused_with_the_valid_ones():
    with pytest.raises(ValueError, match="unknown unit 'word' of steps; valid: statement, line, paragraph"):
        segment("x = 1", "word")  # type: ignore[arg-type]  # no unit


@pytest.mark.slow
@given(st.text(alphabet="ab=1:\n \tdefi`é€", max_size=80), st.sampled_from(UNITS), st.booleans())
def test_steps_are_in_order_do_not_overlap_and_hold_something(solution, unit, text_steps):
    try:
        steps = segment(solution, unit, text_steps=text_steps)
    except NoSteps:
        return
    position = 0
    for step in steps:
        assert position <= step.start < step.end <= len(solution)
        assert solution[step.start : step.end].strip()
        position = step.end


def test_turns_are_steps_and_what_the_tool_said_between_them_is_none():
    solution = "write\nno\nmend"
    found = segment(solution, "turn", turns=[(0, 5), (9, 13)])
    assert [(solution[step.start : step.end], step.kind) for step in found] == [("write", "turn"), ("mend", "turn")]
    assert len(segment(solution, "turn")) == 1
