"""The comparison rules and the codec, as laws."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.sandbox.inside.codec import UNREADABLE, NotData, decode, encode
from rewards.sandbox.inside.compare import same_output, same_value
from rewards.sandbox.inside.frames import FrameBuffer, FrameTooLarge, frame, parse, receive_frame
from rewards.sandbox.worker.direct_calls import as_calls, parse_assert

pytestmark = pytest.mark.slow

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=8)
hashables = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5
)
values = st.recursive(
    hashables
    | st.complex_numbers(allow_nan=False)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.dates()
    | st.datetimes(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(hashables, inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=12,
)


@given(values)
def test_encoding_round_trips_value_and_type(value: object) -> None:
    back = decode(json.loads(json.dumps(encode(value))))
    assert back == value
    assert type(back) is type(value)


@given(values)
def test_a_value_matches_itself(value: object) -> None:
    assert same_value(value, decode(json.loads(json.dumps(encode(value)))))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda i: st.lists(i) | st.dictionaries(st.text(), i)
    )
)
def test_a_value_matches_its_json_form(value: object) -> None:
    assert same_value(value, json.loads(json.dumps(value)))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
        lambda i: st.lists(i) | st.dictionaries(st.text(), i),
    )
)
def test_garbage_is_refused_or_decoded_and_never_raises_otherwise(form: object) -> None:
    with contextlib.suppress(*UNREADABLE):
        encode(decode(form))


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        (1, 1.0, True),
        (1.0, 1, True),
        (0.9999999, 1, False),
        (float("inf"), 10**400, False),
        (2.0**70, 2**70 + 1, False),
        (1 + 0j, 1, True),
        ({10**5000: 1}, {"1": 1}, False),
        ({1: "a", 2: "b"}, {"1": "a", "2": "b"}, True),
        ({}, {"": 1}, False),
        (1, True, False),
        (0, False, False),
        (None, False, False),
        (None, None, True),
        ("1", 1, False),
        ((1, 2), [1, 2], True),
        ([1, 2], [2, 1], False),
        ({1, 2}, {2, 1}, True),
        ({1, 2}, [1, 2], False),
        (0.1 + 0.2, 0.3, True),
        (1.0, 1.00001, False),
        (10**400, 1.0, False),
        (float("nan"), float("nan"), True),
        (float("inf"), float("inf"), True),
        (float("inf"), float("-inf"), False),
        ({1: "a"}, {"1": "a"}, True),
        ({True: "a"}, {"true": "a"}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([[1.0, {"x": (1,)}]], [[1.0000000001, {"x": [1]}]], True),
        (b"a", "a", False),
    ],
)
def test_value_rules(actual: object, expected: object, same: bool) -> None:
    assert same_value(actual, expected) is same


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ("1 2 3\n", "1 2 3", True),
        ("1 2 3  \n\n\n", "1 2 3\n", True),
        ("1\r\n2\r\n", "1\n2", True),
        ("1\n\n2", "1\n2", False),
        ("  1", "1", True),
        ("1 2", "12", False),
        ("11", "0011", False),
        ("0011", "11", False),
        ("9:05", "09:05", False),
        ("09 05", "9 5", False),
        ("+7", "7", False),
        ("0.50", "0.5", True),
        ("00.5", "0.5", True),
        ("12.0", "12", True),
        ("1.2e1", "12", True),
        ("12.0000001", "12", False),
        ("inf", "1" * 400, False),
        ("1e999", "1" * 400, False),
        ("12499997500000.0", "12500002500000", False),
        ("5.7133839564458575e+262", str(math.factorial(150)), False),
        ("1e400", "2e400", False),
        ("1e400", "1.0e400", True),
        ("inf", "1e400", False),
        ("-inf", "inf", False),
        ("Infinity", "inf", True),
        ("nan", "1.5", False),
        ("1_0", "10.0", False),
        ("٣", "3", False),
        ("1" * 5000 + "e", "2.5", False),
        ("0." + "3" * 5000, "0.3333333333", True),
        ("1e999999999999", "1.0", False),
        ("0.33333333", "0.333333334", True),
        ("0.3334", "0.3333", False),
        ("100000000", "100000001", False),
        ("100000000.0", "100000001", False),
        ("1e3", "1000.0", True),
        ("True", "true", True),
        ("None", "null", True),
        ("YES", "yes", False),
        ("nan", "NaN", True),
        ("one 0.5", "two 0.5", False),
        ("", "\n", True),
    ],
)
def test_output_rules(actual: str, expected: str, same: bool) -> None:
    assert same_output(actual, expected) is same


@given(st.text(), st.text(alphabet=" \t", max_size=3), st.text(alphabet="\n", max_size=3))
def test_white_space_at_line_ends_does_not_count(text: str, spaces: str, ends: str) -> None:
    assert same_output("\n".join(line + spaces for line in text.split("\n")) + ends, text)


@given(st.floats(min_value=1e-3, max_value=1e9), st.floats(min_value=-0.9e-6, max_value=0.9e-6))
def test_fractions_within_the_tolerance_are_equal(number: float, error: float) -> None:
    assert same_output(f"{number * (1 + error):.17g}e0", f"{number:.17g}e0")
    assert same_value(number * (1 + error), number)
    assert not same_value(number * 1.001, number)


def test_subclasses_lose_their_behaviour() -> None:
    class Liar(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    class List(list):
        def __iter__(self):
            return iter([1, 2, 3])

    assert decode(encode(Liar(5))) == 5
    assert type(decode(encode(Liar(5)))) is int
    assert decode(encode(List([9]))) == [9]


def test_values_that_are_not_data_are_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    for value in (object(), print, loop, (i for i in "")):
        with pytest.raises(NotData):
            encode(value)


@given(st.lists(st.text() | st.integers()), st.integers(1, 7))
def test_frames_arrive_complete_however_they_are_split(messages: list[object], size: int) -> None:
    data = b"".join(frame(message) for message in messages)
    buffer = FrameBuffer()
    received = [
        message
        for start in range(0, len(data), size)
        for message in map(parse, buffer.feed(data[start : start + size]))
    ]
    assert received == messages


def test_a_frame_above_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(FrameTooLarge):
        FrameBuffer(10).feed(b"\x00\x00\x00\x0b")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"\xff\xff\xff\xff")
        with pytest.raises(ValueError, match="above"):
            receive_frame(ours)
        theirs.close()
        with pytest.raises(EOFError):
            receive_frame(ours)


@pytest.mark.parametrize(
    ("source", "relation"),
    [
        ("assert f(1, 'a', x=[2.5]) == (3, None)", "=="),
        ("assert f(-1) == {1, 2}, 'message'", "=="),
        ("assert f()", "true"),
        ("assert not f({})", "false"),
        ("assert f(1) is None", "is"),
        ("assert (f(1), g(2)) == (3, 4)", "=="),
        ("assert [f(1), f(2)] == [3, 4]", "=="),
        ("assert f(1)[0]['a'] == 3", "=="),
        ("assert f(1)[-1] is None", "is"),
        ("assert f(1)[:2] == [3]", None),
        ("assert f(1)[True] == 3", None),
        ("assert f(1)[x] == 3", None),
        ("assert x[0] == 3", None),
        ("assert f(1)[0](2) == 3", None),
        ("assert (f(1)[0], f(2)) == (3, 4)", None),
        ("assert (f(1), 2) == (3, 2)", None),
        ("assert (f(1), *g(2)) == (3, 4)", None),
        ("assert (f(1), f(x)) == (3, 4)", None),
        ("assert (f(1), f(2)) == (3, g(4))", None),
        ("assert (f(1), f(2)) != (3, 4)", None),
        ("assert () == ()", None),
        ("assert f(1) is 3", None),
        ("assert f(x) == 1", None),
        ("assert f(1) == g(1)", None),
        ("assert f(*[1]) == 1", None),
        ("assert f(x=1, x=2) == 1", None),
        ("assert f(1) == 1 == 1", None),
        ("assert a.f(1) == 1", None),
        ("x = 1\nassert f(1) == 1", None),
        ("not python at all", None),
    ],
)
def test_which_asserts_are_plain_calls(source: str, relation: str | None) -> None:
    call = parse_assert(source)
    assert (call.relation if call else None) == relation


def test_the_values_of_several_calls_are_compared_in_the_display_of_the_test() -> None:
    pair, items = parse_assert("assert (f(1), f(2)) == (3, [4])"), parse_assert("assert [f(1)] == (3,)")
    assert pair is not None
    assert items is not None
    assert pair.holds(pair.value(encode([3, [4]])))
    assert not pair.holds(pair.value(encode([3, (4,)])))
    assert not pair.holds(pair.value(encode([3])))
    assert not items.holds(items.value(encode([3]))), "a list is no tuple"
    with pytest.raises(ValueError, match="not the list"):
        pair.value(encode((3, [4])))


@pytest.mark.parametrize("named", ["f", "math", "sum"])
def test_a_call_of_a_library_or_a_builtin_among_several_needs_a_judge(named: str) -> None:
    tests = as_calls([{"source": f"assert (f(1), {named}([2])) == (3, 4)"}], "")
    assert (tests is None) == (named != "f")


def test_setup_with_code_needs_a_judge() -> None:
    case = {"source": "assert f(1) == 1"}
    assert as_calls([case], "import math") is not None
    assert as_calls([case], "def f(x): return x") is None
    for binds in ("from math import f", "import math as f", "import f.path", "from math import *"):
        assert as_calls([case], binds) is None, binds


def test_equality_in_an_assert_is_that_of_python() -> None:
    call = parse_assert("assert f() == 0.3")
    assert call is not None
    assert not call.holds(0.1 + 0.2)
    assert call.holds(0.3)
    assert math.isclose(0.1 + 0.2, 0.3)


@pytest.mark.parametrize(
    ("actual", "expected", "layout", "same"),
    [
        ("  1\n 121", "  1\n 121", True, True),
        ("1\n121", "  1\n 121", True, False),
        ("1\n121", "  1\n 121", False, True),
        ("1  2", "1 2", True, False),
        ("1\t2", "1 2", True, False),
        ("1 2  ", "1 2", True, True),
        ("1 2.50", "1 2.5", True, True),
        ("7", "007", True, False),
        (" a", "a", True, False),
    ],
)
def test_layout_counts_if_the_case_asks_for_it(actual: str, expected: str, layout: bool, same: bool) -> None:
    assert same_output(actual, expected, layout=layout) is same


@pytest.mark.parametrize(
    "make", [lambda n: "1" * n + "e", lambda n: "1." * n, lambda n: "1 " * n, lambda n: "-" * n + "1"]
)
def test_comparison_takes_steps_in_proportion_to_the_text(make: Callable[[int], str]) -> None:
    def steps(size: int) -> int:
        count = 0

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal count
            count += event in ("call", "line")
            return trace

        text = make(size)
        sys.settrace(trace)
        try:
            same_output(text, text + "0")
        finally:
            sys.settrace(None)
        return count

    assert steps(4000) <= 4 * steps(1000) + 100
