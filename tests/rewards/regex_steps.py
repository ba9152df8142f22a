"""Counts the steps of a backtracking matcher over a pattern: a measure of time without a clock.

It tries the same alternatives in the same order as Python's matcher and counts every item that it visits. Texts are
short, so generators and recursion suffice.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

MOST = 20_000
LETTERS = frozenset([sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN])

Item = tuple[Any, Any]


class Steps:
    """The steps that a pattern takes on one text."""

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self.items = _parsed(pattern)
        self.flags = pattern.flags
        self.text = text
        self.count = 0

    def of(self, *, searches: bool, whole: bool = False) -> int:
        """Of one try at the beginning, or of all matches of a search through the text; stops soon after MOST."""
        place = 0
        while place <= len(self.text) and self.count < MOST:
            ends = self._ways(self.items, place)
            end = next((end for end in ends if not whole or end == len(self.text)), None)
            if not searches:
                break
            place = place + 1 if end is None or end == place else end
        return self.count

    def _ways(self, items: Sequence[Item], place: int) -> Iterator[int]:
        """Where these items may end, in the order in which they are tried."""
        if not items:
            yield place
            return
        (operator, argument), rest = items[0], items[1:]
        self.count += 1
        if self.count > MOST:
            return
        if operator in LETTERS:  # most items: the quickest test comes first
            if place < len(self.text) and self._takes(operator, argument, self.text[place]):
                yield from self._ways(rest, place + 1)
        elif operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            yield from self._repeated(operator, argument, rest, place)
        elif operator in (sre.SUBPATTERN, sre.BRANCH):
            branches = [argument[3]] if operator == sre.SUBPATTERN else argument[1]
            for branch in branches:
                for end in self._ways(branch, place):
                    yield from self._ways(rest, end)
        elif operator == sre.ATOMIC_GROUP:
            yield from self._first(argument, rest, place)
        elif operator in (sre.ASSERT, sre.ASSERT_NOT):
            behind, width, inner = argument
            start = place if behind > 0 else place - width
            holds = start >= 0 and next(self._ways(inner, start), None) is not None
            if holds == (operator == sre.ASSERT):
                yield from self._ways(rest, place)
        elif operator == sre.AT:
            if self._stands(argument, place):
                yield from self._ways(rest, place)
        else:
            raise NotImplementedError(operator)

    def _first(self, inner: Sequence[Item], rest: Sequence[Item], place: int) -> Iterator[int]:
        end = next(self._ways(inner, place), None)
        if end is not None:
            yield from self._ways(rest, end)

    def _repeated(self, operator: Any, argument: Any, rest: Sequence[Item], place: int) -> Iterator[int]:
        least, most, body = argument
        ends = [place]
        step: Callable[[int], int | None] = lambda at: next(self._ways(body, at), None)  # noqa: E731
        if operator == sre.MIN_REPEAT:
            while True:
                if len(ends) > least:
                    yield from self._ways(rest, ends[-1])
                following = step(ends[-1]) if len(ends) <= most else None
                if following is None:
                    return
                ends.append(following)
        if operator == sre.MAX_REPEAT and body[0][0] in (sre.SUBPATTERN, sre.BRANCH):
            yield from self._rounds(body, (least, most), rest, place)
            return
        while len(ends) <= most and (following := step(ends[-1])) is not None and following > ends[-1]:
            ends.append(following)
        if len(ends) <= least:
            return
        if operator == sre.POSSESSIVE_REPEAT:
            ends = ends[-1:]
            least = 0
        for end in reversed(ends[least:]):
            yield from self._ways(rest, end)

    def _rounds(self, body: Sequence[Item], left: tuple[int, int], rest: Sequence[Item], place: int) -> Iterator[int]:
        """A repeat whose rounds may end in several places, all of which are tried."""
        least, most = left
        for end in self._ways(body, place) if most else ():
            if end > place:
                yield from self._rounds(body, (max(0, least - 1), most - 1), rest, end)
        if not least:
            yield from self._ways(rest, place)

    def _stands(self, kind: Any, place: int) -> bool:
        if kind in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            line = bool(self.flags & re.MULTILINE) and kind == sre.AT_BEGINNING
            return place == 0 or (line and self.text[place - 1] == "\n")
        if kind in (sre.AT_END, sre.AT_END_STRING):
            return place == len(self.text) or (kind == sre.AT_END and self.text[place:] == "\n")
        raise NotImplementedError(kind)

    def _takes(self, operator: Any, argument: Any, letter: str) -> bool:
        if operator == sre.LITERAL:
            return chr(argument) == letter
        if operator == sre.NOT_LITERAL:
            return chr(argument) != letter
        if operator == sre.ANY:
            return letter != "\n" or bool(self.flags & re.DOTALL)
        return _in(argument, letter)


@cache
def _parsed(pattern: re.Pattern[str]) -> Sequence[Item]:
    """The items of a pattern, all in tuples, which Python reads ten times as fast as its parser's objects."""
    return tuple(_plain(item) for item in _parser.parse(pattern.pattern, pattern.flags))


def _plain(part: Any) -> Any:
    """A part of a parsed pattern in tuples; assertions get the width of what they look at."""
    if not isinstance(part, tuple | list | _parser.SubPattern):
        return part
    if part and (part[0] is sre.ASSERT or part[0] is sre.ASSERT_NOT):  # numbers equal them
        operator, (behind, inner) = part
        return operator, (behind, int(inner.getwidth()[0]), _plain(inner))
    return tuple(_plain(one) for one in part)


@cache
def _in(members: tuple[Item, ...], letter: str) -> bool:
    negated = members[0][0] == sre.NEGATE
    return any(_holds(one, letter) for one in members[negated:]) is not negated


def _holds(one: Item, letter: str) -> bool:
    operator, argument = one
    if operator == sre.RANGE:
        return argument[0] <= ord(letter) <= argument[1]
    if operator == sre.CATEGORY:
        written = {sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_WORD: r"\w", sre.CATEGORY_SPACE: r"\s"}
        written |= {sre.CATEGORY_NOT_DIGIT: r"\D", sre.CATEGORY_NOT_WORD: r"\W", sre.CATEGORY_NOT_SPACE: r"\S"}
        return re.fullmatch(written[argument], letter) is not None
    return bool(chr(argument) == letter)
