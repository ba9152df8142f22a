"""Columns of steps: the same step of several programs has one number, counted from the last."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.analysis import columns
from rewards.analysis.columns import in_columns


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        (["abc"], ["321"]),
        (["abc", "abx"], ["321", "321"]),  # written differently
        (["abc", "ab", "bc"], ["321", "32", "21"]),  # missing
        (["abc", "abxc"], ["431", "4321"]),  # in addition
        (["abc", "aba"], ["321", "321"]),  # different, with the code of another step
        (["abc", "cbx"], ["321", "321"]),
        (["abc", "cab"], ["321", "132"]),  # moved
        (["abcd", "bacd", "abd"], ["4321", "3421", "431"]),
        (["abx", "aby", "ab", "cbz"], ["321", "321", "32", "321"]),  # differing ends beside a missing one
        (["abc", "bc", "ab", "abx"], ["321", "21", "32", "321"]),
        (["aa", "a"], ["21", "1"]),
        (["", "ab"], ["", "21"]),
        (["yabc", "acyy"], ["1543", "5321"]),  # moved, and one more
    ],
)
def test_a_column_holds_what_is_the_same_step(programs: list[str], expected: list[str]):
    assert in_columns(programs) == [[int(number) for number in numbers] for numbers in expected]


TEXTS = st.lists(st.text("abcd", max_size=6), min_size=1, max_size=5)


@given(TEXTS)
def test_a_step_has_one_column_and_none_is_empty(programs: list[str]):
    found = in_columns(programs)
    assert [len(set(own)) for own in found] == [len(program) for program in programs]
    used = {number for own in found for number in own}
    assert used == set(range(1, len(used) + 1))
    assert dict(zip([*programs, "ad"], in_columns([*programs, "ad"]), strict=True)) == dict(
        zip(["ad", *programs, *programs], in_columns(["ad", *programs, *programs]), strict=True)
    )


@given(TEXTS)
def test_steps_whose_code_did_not_move_are_numbered_in_their_order(programs: list[str]):
    whole = "abcd"
    parts = ["".join(code for code in whole if code in program) for program in programs]
    for own in in_columns([whole, *parts]):
        assert own == sorted(own, reverse=True)


@given(st.permutations("abcdef"), st.permutations("abcdef"))
def test_code_that_every_program_has_once_is_one_column_in_any_order(first: list[str], second: list[str]):
    one, other = in_columns([first, second])
    assert dict(zip(first, one, strict=True)) == dict(zip(second, other, strict=True))


@given(st.permutations("abcdef"), st.integers(0, 5), st.integers(0, 6))
def test_one_step_less_in_a_program_and_one_more_in_another_leave_the_others_theirs(
    whole: list[str], without: int, place: int
):
    fewer, more = whole[:without] + whole[without + 1 :], [*whole[:place], "x", *whole[place:]]
    numbers = [
        dict(zip(program, own, strict=True))
        for program, own in zip((more, whole, fewer), in_columns([more, whole, fewer]), strict=True)
    ]
    assert numbers[2].items() <= numbers[1].items() <= numbers[0].items()


def test_long_programs_are_compared_by_code_alone(monkeypatch: pytest.MonkeyPatch):
    programs = ["abcdef", "abdefx"]
    assert in_columns(programs) == [[7, 6, 5, 4, 3, 2], [7, 6, 4, 3, 2, 1]]
    monkeypatch.setattr(columns, "_MOST", 35)
    assert in_columns(programs) == [[6, 5, 4, 3, 2, 1], [6, 5, 3, 2, 1, 4]]
