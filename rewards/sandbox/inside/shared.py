"""Lists, dicts, sets and bytearrays that a test and the program both hold, kept equal on both sides.

Python passes them by reference: each side sees the changes of the other. Here each side has its own copy, under a
common number, and every message ends with its sender's changes since the last one. The two sides never run at the same
time, so both always see the same contents.

A container travels as `{"&": [number, contents]}` the first time and as `{"=": number}` from then on. Beyond `ROOM`
items in total, containers travel as plain data: later changes then stay on their side.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from typing import Any

ROOM = 20_000
"""Items that are compared at each message, both sides together."""
MUTABLE = (list, dict, set, bytearray)


class Shared:
    """One side's containers. `first`: 0 on the judge's side, 1 on the program's, so that numbers never collide."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._parity = first
        self._room = ROOM
        self._numbers: dict[int, int] = {}
        self._objects: dict[int, Any] = {}
        self._before: dict[int, list[Any]] = {}

    def form(self, value: Any, contents: Callable[[], Any]) -> Any:
        """The form of a container; `contents` makes the form of its items."""
        number = self._numbers.get(id(value))
        if number is not None:
            return {"=": number}
        if len(value) >= self._room:
            return contents()
        number, self._next = self._next, self._next + 2
        self._add(number, value)
        return {"&": [number, contents()]}

    def _add(self, number: int, value: Any) -> None:
        self._room -= 1 + len(value)
        # The dict keeps the container alive, so that its id is not reused.
        self._objects[number] = value
        self._numbers[id(value)] = number
        self._before[number] = _parts(value)

    def value(self, tag: str, body: Any, decode: Callable[[Any], Any]) -> Any:
        """The container of a form; raises ValueError or KeyError for an invalid number."""
        if tag == "=":
            return self._objects[body]
        number, form = body
        if type(number) is not int or number % 2 == self._parity or number in self._objects or self._room < -ROOM:
            raise ValueError("not a container number of the other side")
        made: Any = [] if type(form) is list else {"d": dict, "s": set, "a": bytearray}[next(iter(form), "")]()
        self._add(number, made)
        self._fill(number, decode(form))
        return made

    def attempt(self, encode: Callable[[], Any]) -> Any:
        """The result of `encode`, which encodes values for sending; if it raises, none of them becomes shared."""
        known = len(self._objects)
        try:
            return encode()
        except BaseException:
            for number in list(self._objects)[known:]:
                value = self._objects.pop(number)
                self._before.pop(number, None)
                del self._numbers[id(value)]
            raise

    def updates(self, form: Callable[[Any], Any]) -> list[Any]:
        """Changes on this side since the last message, as pairs of number and form.

        Contents that can't be sent stay on this side.
        """
        changes = []
        for number, value in list(self._objects.items()):
            parts = _parts(value)
            if not _identical(parts, self._before[number]):
                self._before[number] = parts
                with contextlib.suppress(TypeError):
                    changes.append([number, self.attempt(lambda value=value: form(value))])  # type: ignore[misc]
        return changes

    def apply(self, updates: list[Any], decode: Callable[[Any], Any]) -> None:
        """Apply the changes of the other side; raises ValueError or KeyError for an invalid change."""
        for number, form in updates:
            if type(number) is not int:
                raise ValueError("not a container number")
            self._fill(number, decode(form))

    def _fill(self, number: int, contents: Any) -> None:
        value = self._objects[number]
        if type(contents) is not type(value):
            raise ValueError("a container cannot change its type")
        if isinstance(value, (list, bytearray)):
            value[:] = contents
        else:
            value.clear()
            value.update(contents)
        self._before[number] = _parts(value)


def _parts(value: Any) -> list[Any]:
    if type(value) is bytearray:
        return list(value)  # small integers, which are singletons
    return [*value, *value.values()] if type(value) is dict else list(value)


def _identical(left: list[Any], right: list[Any]) -> bool:
    # By identity, not equality: the cost does not depend on the items, and none of their code runs.
    return len(left) == len(right) and all(map(operator.is_, left, right))
