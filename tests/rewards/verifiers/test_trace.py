"""Verifier `trace`: values are compared type for type, and tuples element by element."""

import json

import pytest
from pydantic import ValidationError

from rewards import compute_score
from rewards.verifiers.trace import TraceTruth


async def score(response, expected):
    result = await compute_score("trace", response, json.dumps({"expected": expected}))
    return result["score"], result["error"]


@pytest.mark.parametrize(
    ("response", "expected", "share"),
    [
        ("12", "12", 1.0),
        (" 12 \n", "12", 1.0),
        ("it is\n12", "12", 1.0),
        ("(8,8)", "(8, 8)", 1.0),
        ("8, 8", "(8, 8)", 1.0),
        ("(8, 7)", "(8, 8)", 0.5),
        ("(8, 8, 8)", "(8, 8)", 0.0),
        ("[8, 8]", "(8, 8)", 0.0),
        ("True", "1", 0.0),
        ("1.0", "1", 0.0),
        ("(True, 2)", "(1, 2)", 0.5),
        ("'12'", "12", 0.0),
        ("{'b': 2, 'a': 1}", "{'a': 1, 'b': 2}", 1.0),
        ("{'a': True}", "{'a': 1}", 0.0),
        ("{2, 1}", "{1, 2}", 1.0),
        ("nan", "12", 0.0),
    ],
)
async def test_share_of_right_elements(response, expected, share):
    assert (await score(response, expected))[0] == share


@pytest.mark.parametrize("response", ["f(3)", "6+6", "__import__('os')", "12 13", "9**9**9", "(" * 500, "１２"])
async def test_what_is_not_a_literal_is_a_syntax_error(response):
    assert await score(response, "12") == (0.0, "syntax")


def test_the_expected_value_must_be_a_literal():
    with pytest.raises((ValidationError, ValueError)):
        TraceTruth(expected="f(3)")
