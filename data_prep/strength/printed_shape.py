"""The shape of a problem's standard inputs: what all of them share, so that a new one shares it too. Pure.

A text is read as rows of words. Its parts are the first rows and their words, all rows after the first, the columns of
these, and the numbers of rows and words; what holds for the parts of every input (order, distinct items, a number that
counts another part, bounds, trees, brackets) is taken for a requirement, as in `properties`.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from data_prep.strength.properties import common_properties, has, numbers

WordRow = list[int | float | str]
_HEADS, _FEW = 4, 4
INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_DECIMAL = re.compile(r"-?\d{1,18}\.\d{1,18}")
_OPENING = {")": "(", "]": "[", "}": "{", ">": "<"}


def rows_of(text: str) -> list[WordRow]:
    """The words of every line that has some, numbers as such."""
    return [[_value(word) for word in line.split()] for line in text.split("\n") if line.strip()]


def _value(word: str) -> int | float | str:
    if INTEGER.fullmatch(word):
        return int(word)
    return float(word) if _DECIMAL.fullmatch(word) else word


def shape_of(inputs: Sequence[str]) -> Callable[[str], bool]:
    """Whether a text with the rows and words of one of these inputs has all that they share."""
    read = list(map(rows_of, inputs))
    heads = min(_HEADS, *map(len, read))
    widths = [{len(rows[number]) for rows in read} for number in range(heads)]
    columns = {len(row) for rows in read for row in rows[1:]}
    parts = partial(
        _parts,
        widths=[min(of_row) if len(of_row) == 1 and min(of_row) <= _FEW else 0 for of_row in widths],
        columns=min(columns) if len(columns) == 1 and min(columns) <= _FEW else 0,
    )
    once = _single_words(read)
    shared = common_properties([parts(rows) for rows in read], _OF_ONE, _OF_TWO)

    def fits(text: str) -> bool:
        rows = rows_of(text)
        found = parts(rows)
        broken = next((number for number, one in enumerate(shared) if not has(one, found)), None)
        if broken is not None:
            shared.insert(0, shared.pop(broken))  # most new inputs break the same few properties
        return broken is None and once <= _single_words([rows])

    return fits


def _parts(rows: Sequence[WordRow], *, widths: Sequence[int], columns: int) -> list[Any]:
    """The parts of an input: equally many for all inputs of a problem.

    widths: numbers of words of the first rows, 0 where they differ. columns: the same of all other rows.
    """
    after = list(rows[1:])
    pairs = [row[:2] for row in after]
    found: list[Any] = [after, pairs, len(after), sum(map(len, after)), sum(numbers(rows[:1]))]
    for number, width in enumerate(widths):
        following = rows[number + 1] if number + 1 < len(rows) else []
        found += [rows[number], len(rows) - number - 1, len(following), *rows[number][:width]]
    return found + [[row[column] for row in after] for column in range(columns)]


def _single_words(read: Sequence[Sequence[WordRow]]) -> set[str]:
    """The letters that occur exactly once in the words of each input, such as the start in a maze."""
    counts = [Counter("".join(word for row in rows for word in row if isinstance(word, str))) for rows in read]
    return set.intersection(*({letter for letter, times in one.items() if times == 1} for one in counts))


def counts_rows(read: Sequence[Sequence[WordRow]]) -> bool:
    """Whether the number of rows is explained: the same in three or more inputs, or given by a number in a first row.

    If not, blocks of rows may begin anywhere, with sizes that the rows themselves cannot show.
    """
    if len(set(map(len, read))) == 1:
        return len(read) >= 3
    for number in range(min(_HEADS, *map(len, read))):
        left = [len(rows) - number - 1 for rows in read]
        for place in range(min(_FEW, *(len(rows[number]) for rows in read))):
            given = [rows[number][place] for rows in read]
            if any(all(has(partial(_applied, one), pair) for pair in zip(given, left, strict=True)) for one in _COUNTS):
                return True
    return False


def _applied(relation: Callable[[Any, Any], bool], pair: Sequence[Any]) -> bool:
    return relation(*pair)


def _is_balanced(text: Any) -> bool:
    """Whether a text of two or more brackets, and only such, is balanced."""
    if not isinstance(text, str) or len(text) < 2 or not set(text) <= {*_OPENING, *_OPENING.values()}:
        return False
    waiting: list[str] = []
    for letter in text:
        if letter not in _OPENING:
            waiting.append(letter)
        elif not waiting or waiting.pop() != _OPENING[letter]:
            return False
    return not waiting


def _is_connected(rows: Any) -> bool:
    """Whether pairs of numbers are the edges of one connected graph."""
    joined: list[set[Any]] = []
    for first, second in rows:
        ends = {_number(first), _number(second)}
        joined = [one for one in joined if not one & ends] + [ends.union(*(one for one in joined if one & ends))]
    return len(joined) == 1


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError("no whole number")
    return value


_OF_ONE: tuple[Callable[[Any], bool], ...] = (
    lambda value: max(numbers(value)) <= len(value),
    lambda value: all(row == sorted(row) for row in value),
    lambda value: all(len(set(row)) == len(row) for row in value),
    lambda value: len(set(map(frozenset, value))) == len(value),
    lambda value: len({number % 2 for number in numbers(value)}) == 1,
    lambda value: sum(numbers(value)) == 0,
    lambda value: len(set(value)) == len(value) > 1 and isinstance(value, str),
    lambda value: isinstance(value, str) and value == value[::-1],
    _is_balanced,
    _is_connected,
)

_COUNTS: tuple[Callable[[Any, Any], bool], ...] = (
    lambda first, second: _number(first) == second,
    lambda first, second: _number(first) - 1 == second,
    lambda first, second: _number(first) + 1 == second,
    lambda first, second: 2 * _number(first) == second,
    lambda first, second: 3 * _number(first) == second,
    lambda first, second: _number(first) * (_number(first) - 1) == 2 * second,
)

_OF_TWO: tuple[Callable[[Any, Any], bool], ...] = (
    *_COUNTS,
    lambda first, second: max(numbers(first)) <= _number(second),
    lambda first, second: max(numbers(first)) < _number(second),
    lambda first, second: min(numbers(first)) >= _number(second),
    lambda first, second: len(set(numbers(first))) == _number(second),
    lambda first, second: sum(numbers(first)) == _number(second),
    lambda first, second: sum(numbers(first)) >= _number(second),
    lambda first, second: sum(numbers(first)) == sum(numbers(second)),
    lambda first, second: sorted(first) == sorted(second),
    lambda first, second: set(first).isdisjoint(second),
    lambda first, second: set(first) <= set(second),
    lambda first, second: len(first) == len(second),
    lambda first, second: _number(second) % _number(first) == 0 and _number(first) != 0,
    lambda first, second: all(one <= other for one, other in zip(first, second, strict=True)),
)
