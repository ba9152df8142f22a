"""The thinking part: it must be opened and closed once, and text inside it is not an answer."""

import pytest

from rewards.extraction import MAX_ANSWER_CHARACTERS, after_thinking, is_well_formed


@pytest.mark.parametrize(
    ("response", "by_response", "by_template"),
    [
        ("<think>\nlet me see\n</think>\n[A]", True, False),
        ("let me see\n</think>\n[A]", False, True),
        ("<think>\nlet me see\n[A]", False, False),
        ("<think>let me see</think>\n[A]", False, False),
        (" <think>\nlet me see</think>\n[A]", False, False),
        ("<think>\n \n</think>\n[A]", False, False),
        ("<think>\nlet me see\n</think>\n ", False, False),
        ("<think>\na</think>\n<think>\nb</think>\n[A]", False, False),
        ("<think>\n<think>\na</think>\n[A]", False, False),
        ("a</think>b</think>[A]", False, False),
        ("</think>[A]", False, False),
        ("[A]", False, False),
        ("", False, False),
    ],
)
def test_the_form_is_one_closed_part_and_an_answer(response, by_response, by_template):
    assert is_well_formed(response, "response") == by_response
    assert is_well_formed(response, "template") == by_template
    assert is_well_formed(response, "either") == (by_response or by_template)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<think>\n[A]\n</think>\n[B]", "\n[B]"),
        ("[A]</think>[B]", "[B]"),
        ("[B]", "[B]"),
        ("<think>\n[A]", None),
        ("<think>\n[A]</think>", None),
        ("<think>\n[A]</think><think>[B]", None),
        ("", None),
        ("x" * (MAX_ANSWER_CHARACTERS + 1), None),
        ("<think>\n" + "x" * (MAX_ANSWER_CHARACTERS + 1) + "</think>[B]", "[B]"),
    ],
)
def test_only_text_after_the_thinking_is_an_answer(response, answer):
    assert after_thinking(response) == answer


def test_thinking_that_the_template_opened_must_end():
    assert after_thinking("[A]", "template") is None
    assert after_thinking("so</think>[A]", "template") == "[A]"
