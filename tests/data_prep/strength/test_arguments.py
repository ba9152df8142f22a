"""New arguments keep the types and what all known inputs share."""

import random
from typing import Any

import pytest

from data_prep.strength.arguments import literals, new_arguments


def made(*rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    found = new_arguments(rows, random.Random(0), 40)
    assert len({repr(row) for row in found}) == len(found)
    assert not any(row in rows for row in found)
    return found


def types(value: Any) -> Any:
    return (
        {type(value), *(kind for item in value for kind in types(item))} if isinstance(value, list) else {type(value)}
    )


def test_types_and_signs_stay():
    found = made((3, [1, 5], "ab"), (9, [2, 2, 0], "c"))
    assert len(found) == 40
    for number, items, text in found:
        assert type(number) is int
        assert number >= 1
        assert types(items) == {list, int}
        assert min(items) >= 0
        assert text
        assert text == text.lower()
    assert {number for number, _, _ in found} > {3, 9}
    assert any(len(items) > 3 for _, items, _ in found)
    assert any(number < 0 for (number,) in made((3,), (-2,)))


def test_sorted_lists_stay_sorted_and_numbers_in_them_stay_in_them():
    for items, wanted in made(([1, 4, 9], 4), ([2, 3], 2), ([5, 6, 7, 8], 8)):
        assert items == sorted(items)
        assert wanted in items


def test_lengths_that_agree_stay_so():
    rows = ([1, 0, 2], ["a", "b", "c"], 3), ([5, 1], ["x", "y"], 2)
    found = made(*rows)
    assert found
    assert all(len(numbers) == len(words) == count for numbers, words, count in found)
    for (matrix,) in made(([[1, 2], [3, 4]],), ([[1, 2, 0], [3, 4, 0], [5, 5, 5]],)):
        assert {len(line) for line in matrix} == {len(matrix)}


def test_properties_that_only_some_inputs_have_are_dropped():
    assert any(items != sorted(items) for (items,) in made(([1, 2],), ([2, 1],)))


def test_what_a_program_spells_out_is_tried():
    words = literals("def f(x):\n    return 29 if x == 'abc' else 10 ** 9 + len('a long piece of text')")
    assert words == [29, "abc", 10, 9]
    found = {number for (number,) in new_arguments([(4,)], random.Random(0), 40, words)}
    assert {28, 29, 30} <= found
    assert max(number for (number,) in new_arguments([(4,)], random.Random(0), 40, [10**9])) < 100
    assert any("abc" in text for (text,) in new_arguments([("xy",)], random.Random(0), 40, words))


@pytest.mark.parametrize("rows", [[], [()], [(None,)], [(b"x",)]])
def test_nothing_is_made_of_nothing(rows):
    assert new_arguments(rows, random.Random(0), 5) == []
