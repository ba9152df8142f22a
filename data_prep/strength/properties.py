"""Likely invariants of a function's arguments: properties that all known inputs have, so that new ones have them too.

A problem's text states what its inputs are; its tests only show it. As in Daikon (Ernst et al., 2007), what holds for
every input in the tests is taken for a requirement: an input that breaks it may be none.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

Arguments = Sequence[Any]
Property = Callable[[Arguments], bool]


def common_properties(
    rows: Sequence[Arguments],
    of_one: Sequence[Callable[[Any], bool]] = (),
    of_two: Sequence[Callable[[Any, Any], bool]] = (),
) -> list[Property]:
    """The properties that all these inputs of one function have.

    rows: at least one, with equally many arguments. of_one, of_two: more properties of an argument, and of two.
    """
    known = _known(len(rows[0]), (*_OF_ONE, *of_one), (*_OF_TWO, *of_two))
    return [one for one in known if all(has(one, row) for row in rows)]


def has(one: Property, row: Arguments) -> bool:
    """Whether an input has a property; one that its types do not allow, it has not."""
    try:
        return bool(one(row))
    except (TypeError, ValueError, IndexError, ArithmeticError, RecursionError):
        return False


def _known(
    arguments: int, of_one: Sequence[Callable[[Any], bool]], of_two: Sequence[Callable[[Any, Any], bool]]
) -> Iterator[Property]:
    for place in range(arguments):
        yield from (partial(_on_one, one, place) for one in of_one)
    for first in range(arguments):
        for second in range(arguments):
            if first != second:
                yield from (partial(_on_two, two, first, second) for two in of_two)


def _on_one(of_one: Callable[[Any], bool], place: int, row: Arguments) -> bool:
    return of_one(row[place])


def _on_two(of_two: Callable[[Any, Any], bool], first: int, second: int, row: Arguments) -> bool:
    return of_two(row[first], row[second])


def leaves(value: Any) -> Iterator[Any]:
    """The numbers, strings and so on in a value, from all depths."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(key)
            yield from leaves(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def numbers(value: Any) -> list[float]:
    """The numbers in a value, from all depths."""
    return [one for one in leaves(value) if isinstance(one, int | float) and not isinstance(one, bool)]


def _lengths(value: Any) -> set[int]:
    return {len(item) for item in _items(value)}


def _items(value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError("no sequence")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("no number")
    return value


_OF_ONE: tuple[Callable[[Any], bool], ...] = (
    lambda value: min(numbers(value)) >= 0,
    lambda value: min(numbers(value)) >= 1,
    lambda value: len(value) >= 1,
    lambda value: all(length >= 1 for length in _lengths(value)),
    lambda value: list(_items(value)) == sorted(_items(value)),
    lambda value: list(_items(value)) == sorted(_items(value), reverse=True),
    lambda value: len({repr(item) for item in _items(value)}) == len(value),
    lambda value: len(_lengths(value)) == 1,
    lambda value: _lengths(value) == {len(value)},
    lambda value: _text(value).isdecimal(),
    lambda value: _text(value).isalpha(),
    lambda value: _text(value).isalnum(),
    lambda value: _text(value) == _text(value).lower(),
    lambda value: _text(value) == _text(value).upper(),
    lambda value: " " not in _text(value),
    lambda value: _text(value) == " ".join(_text(value).split()),
    lambda value: len(_text(value)) == 1,
)

_OF_TWO: tuple[Callable[[Any, Any], bool], ...] = (
    lambda first, second: len(first) == len(second),
    lambda first, second: _number(first) == len(second),
    lambda first, second: _number(first) == len(second) - 1,
    lambda first, second: _number(first) <= len(second),
    lambda first, second: _number(first) < len(second),
    lambda first, second: _number(first) <= _number(second),
    lambda first, second: _number(first) < _number(second),
    lambda first, second: first in second,
)
