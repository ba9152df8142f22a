"""New arguments of a function: those of its tests with small changes that keep what all of them share. Pure."""

import ast
import random
from collections.abc import Sequence
from typing import Any

from data_prep.strength.properties import Arguments, common_properties, has, leaves, numbers

_TRIES = 30
_LONGEST = 400
_SMALL, _TIMES = 100, 10


def literals(program: str) -> list[Any]:
    """The numbers and short texts that a program spells out: its behaviour may change at them."""
    values = [node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)]
    return [
        one for one in dict.fromkeys(values) if type(one) in (int, float) or (isinstance(one, str) and 0 < len(one) < 9)
    ]


def new_arguments(
    rows: Sequence[Arguments], rng: random.Random, count: int, words: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Up to `count` new inputs, none of them in `rows`, with the properties that all rows have.

    rows: the arguments in the tests, of one function and of equal number. words: values to try inside of arguments.
    """
    if not rows or not rows[0]:
        return []
    properties = common_properties(rows)
    pools = [_Pool([row[place] for row in rows], words) for place in range(len(rows[0]))]
    limit = max(_LONGEST, 2 * max(len(repr(row)) for row in rows))
    seen = {repr(tuple(row)) for row in rows}
    made: list[tuple[Any, ...]] = []
    for _ in range(_TRIES * count):
        row = tuple(_changed_row(rng.choice(rows), pools, rng))
        text = repr(row)
        if text not in seen and len(text) <= limit and all(has(one, row) for one in properties):
            seen.add(text)
            made.append(row)
            if len(made) == count:
                break
    return made


class _Pool:
    """What the tests give for one argument: whole values, and the numbers and texts inside; and numbers to try."""

    def __init__(self, values: Sequence[Any], words: Sequence[Any]) -> None:
        self.values = values
        inside = [leaf for value in values for leaf in leaves(value)]
        self.numbers = numbers(values)
        self.letters = "".join(one for one in inside if isinstance(one, str))
        self.texts = [one for one in inside if isinstance(one, str)]
        largest = max(_SMALL, _TIMES * max(map(abs, self.numbers), default=0))
        self.tried = [one for one in numbers(list(words)) if abs(one) <= largest]
        self.pieces = [one for one in words if isinstance(one, str)]
        self.decimals = max((len(repr(one).partition(".")[2]) for one in inside if isinstance(one, float)), default=1)

    def number(self, near: float, rng: random.Random) -> float:
        """A number near another one, or within twice the span of those in the tests."""
        known = self.numbers or [near]
        low, high = min(known), max(known)
        margin = max(5, high - low)
        if self.tried and rng.random() < 0.25:
            return rng.choice(self.tried) + rng.choice((-1, 0, 1))
        return rng.choice((near + 1, near - 1, near + rng.randint(2, 5), rng.choice(known), _between(rng, low, high),
                           _between(rng, low - margin, high + margin)))  # fmt: skip


def _between(rng: random.Random, low: float, high: float) -> float:
    if isinstance(low, int) and isinstance(high, int):
        return rng.randint(low, high)
    return rng.uniform(low, high)


def _changed_row(row: Arguments, pools: Sequence[_Pool], rng: random.Random) -> list[Any]:
    changed = list(row)
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(len(changed))
        if rng.random() < 0.2:
            changed[place] = rng.choice(pools[place].values)
        else:
            changed[place] = _changed(changed[place], pools[place], rng)
    return changed


def _changed(value: Any, pool: _Pool, rng: random.Random) -> Any:
    """A value of the same type; the value itself where nothing is known about its type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return int(pool.number(value, rng))
    if isinstance(value, float):
        return round(float(pool.number(value, rng)), pool.decimals)
    if isinstance(value, str):
        return _changed_text(value, pool, rng)
    if isinstance(value, list | tuple):
        return type(value)(_changed_items(list(value), pool, rng))
    if isinstance(value, set | frozenset):
        return type(value)(_changed_items(sorted(value, key=repr), pool, rng))
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        if len(value) > 1 and rng.random() < 0.3:
            return {other: item for other, item in value.items() if other != key}
        return value | {key: _changed(value[key], pool, rng)}
    return value


def _changed_items(items: list[Any], pool: _Pool, rng: random.Random) -> list[Any]:
    if not items:
        same = [list(value) for value in pool.values if isinstance(value, list | tuple | set | frozenset)]
        return rng.choice(same) if same else items
    place = rng.randrange(len(items))
    change = rng.choice(("item", "item", "item", "drop", "repeat", "swap", "shuffle", "reverse"))
    if change == "item":
        return [*items[:place], _changed(items[place], pool, rng), *items[place + 1 :]]
    if change == "drop":
        return items[:place] + items[place + 1 :]
    if change == "repeat":
        at = rng.randrange(len(items) + 1)
        return [*items[:at], items[place], *items[at:]]
    if change == "swap":
        other = rng.randrange(len(items))
        items[place], items[other] = items[other], items[place]
        return items
    return rng.sample(items, len(items)) if change == "shuffle" else items[::-1]


def _changed_text(text: str, pool: _Pool, rng: random.Random) -> str:
    letters = pool.letters or "a"
    if not text:
        return rng.choice([*pool.texts, rng.choice(letters)])
    place = rng.randrange(len(text))
    if pool.pieces and rng.random() < 0.25:
        return text[:place] + rng.choice(pool.pieces) + text[place:]
    change = rng.choice(("letter", "letter", "drop", "repeat", "insert", "case", "swap", "part"))
    if change == "letter":
        return text[:place] + rng.choice(letters) + text[place + 1 :]
    if change == "drop":
        return text[:place] + text[place + 1 :]
    if change == "repeat":
        return text[:place] + text[place] + text[place:]
    if change == "insert":
        return text[:place] + rng.choice(letters) + text[place:]
    if change == "case":
        return text[:place] + text[place].swapcase() + text[place + 1 :]
    if change == "swap":
        return text[place:] + text[:place]
    return text[: place + 1] + rng.choice(pool.texts)[place + 1 :]
