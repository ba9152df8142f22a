"""Verifier `calls`: functions and methods of class Solution are called with plain data."""

import json
from typing import Any

import pytest

from rewards import compute_score


async def score_of(program: str, *calls: tuple[list[Any], Any], timeout: float = 10.0, **more: Any) -> object:
    truth = {"function": "f", "calls": [{"args": args, "expected": value} for args, value in calls]} | more
    return (await compute_score("calls", program, json.dumps(truth), timeout=timeout))["score"]


@pytest.mark.parametrize(
    ("body", "args", "expected", "score"),
    [
        ("return (1, (2,))", [], [1, [2]], 1.0),
        ("return 0.1 + 0.2", [], 0.3, 1.0),
        ("return 1", [], True, 0.0),
        ("return '1'", [], 1, 0.0),
        ("return {1: 'a'}", [], {"1": "a"}, 1.0),
        ("return [xs[1], xs[-2]['3']]", [{"1": 5, "-2": {"3": 4}}], [5, 4], 1.0),
        ("return xs['a']", [{"1": 5, "a": 6}], 6, 1.0),
        ("xs.append(3)", [[1]], [1, 3], 0.0),
        ("return pow(xs, -1, 7)", [3], 5, 1.0),
        ("return Counter(xs).most_common(1)[0][0]", ["aab"], "a", 1.0),
        ("return heapq.nsmallest(1, xs) + [gcd(4, 6)]", [[5, 4]], [4, 2], 1.0),
    ],
)
async def test_returned_values_are_compared_as_data(body, args, expected, score):
    arguments = "xs" if args else ""
    assert await score_of(f"def f({arguments}):\n    {body}", (args, expected)) == score


@pytest.mark.slow
async def test_a_call_that_does_not_return_is_wrong():
    calls = ([0], 0), ([1], 1)
    assert await score_of("def f(x):\n    while x: pass\n    return x", *calls, timeout=0.5) == 0.5


async def test_a_method_has_a_new_object_in_each_call():
    program = "class Solution:\n    n = 0\n    def f(self):\n        self.n += 1\n        return self.n"
    assert await score_of(program, ([], 1), ([], 1)) == 1.0
    assert await score_of(f"{program}\ndef f():\n    return 2", ([], 1), ([], 2)) == 0.5
    assert await score_of("class Solution:\n    def g(self):\n        return 1", ([], 1)) == 0.0


async def test_imports_from_the_future_stay_first():
    start = '"""A program."""\nfrom __future__ import annotations'
    for rest in ("\n", "; x = 1\n", "  # first\n"):
        assert await score_of(f"{start}{rest}def f(x: Any) -> Any:\n    return isqrt(x)", ([16], 4)) == 1.0


@pytest.mark.slow
async def test_a_bare_item_is_right_if_all_expected_values_are_lists_of_one():
    bare, listed = "def f(x):\n    return x", "def f(x):\n    return [x]"
    calls = ([1], [1]), ([2], [2])
    assert [await score_of(one, *calls, wrapped=True) for one in (bare, listed)] == [1.0, 1.0]
    assert [await score_of(one, *calls) for one in (bare, listed)] == [0.0, 1.0]
    # One program is one or the other.
    assert await score_of("def f(x):\n    return x if x == 1 else [x]", *calls, wrapped=True) == 0.5


async def test_the_program_cannot_reach_what_is_expected():
    reader = "import sys\ndef f():\n    frame = sys._getframe()\n    return [frame.f_back.f_locals.get('expected')]"
    liar = "class Yes:\n    def __eq__(self, other):\n        return True\ndef f():\n    return Yes()"
    for program in (reader, liar):
        assert await score_of(program, ([], 73)) == 0.0
