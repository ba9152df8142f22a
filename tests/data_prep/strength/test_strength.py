"""The strength of tests: what counts, when it is known, and the tests that a weak suite lacks."""

import json

import pytest

from data_prep.strength.strength import Strength, Survivor, changed_lines, report, smallest_cover


@pytest.mark.parametrize(
    ("counts", "share", "standing"),
    [
        ({"killed": 8, "survived": 2}, 0.8, "strong"),
        ({"killed": 7, "survived": 2}, 7 / 9, "weak"),
        ({"killed": 8, "survived": 2, "equivalent": 90}, 0.8, "strong"),
        ({"killed": 8, "survived": 2, "unjudged": 90}, 0.8, "strong"),
        ({"killed": 8, "undecided": 2}, 1.0, "strong"),  # even if both are wrong
        ({"killed": 8, "undecided": 3}, 1.0, "unknown"),
        ({"killed": 5, "survived": 5, "undecided": 1}, 0.5, "weak"),  # even if the tests reject it
        ({"equivalent": 3}, None, "unknown"),
        ({"reason": "its solution fails a test"}, None, "unknown"),
    ],
)
def test_a_standing_needs_evidence(counts, share, standing):
    found = Strength("own/1", **counts)
    assert found.share == share
    assert found.standing(0.8) == standing


def test_a_cover_fails_every_program_with_few_tests():
    failing = [frozenset({0, 3}), frozenset({1, 3}), frozenset({2, 3}), frozenset({4}), frozenset({1, 4})]
    assert smallest_cover(failing) == [3, 4]
    assert smallest_cover([]) == []


def test_changed_lines_ignore_layout():
    assert (
        changed_lines("def f(x):\n  return (x+1)", "def f(x):\n    return x - 1")
        == "-     return x + 1\n+     return x - 1"
    )
    assert changed_lines("def f(x):\n    return x", "def f(*a):\n    return 3") == "+ def f(*a):\n+     return 3"


def test_the_report_lists_the_weakest_first_and_results_survive_json():
    example = Survivor("operator", "- a + b\n+ a - b", "assert f(1, 2) == 3", "returned -1, expected 3")
    weak = Strength(
        "own/1", killed=2, survived=2, kinds={"operator": 2}, examples=[example], added=["assert f(1) == 2"]
    )
    weakest = Strength("own/2", killed=0, survived=1)
    assert Strength.of_record(json.loads(json.dumps(weak.record()))) == weak
    text = report([Strength("own/0", killed=9), weak, weakest, Strength("own/3", undecided=2, inputs=1)], 0.8)
    assert "4 problems: 1 strong, 2 weak, 1 unknown." in text
    assert text.index("|`own/2`|1|0|1|0|0.00|") < text.index("|`own/1`|4|2|2|0|0.50|")
    assert "fails `assert f(1, 2) == 3`: returned -1, expected 3" in text
    assert "- `own/3`: 2 accepted programs, 1 new inputs" in text
