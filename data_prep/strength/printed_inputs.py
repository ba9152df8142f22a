"""New standard inputs: those of a problem's cases with some numbers and words changed, in the shape of all cases. Pure.

A number that counts what follows (the lines left, or the words of the next line) changes only with the words of a list
in the second line, whose sizes stay within those seen. Nor is the first line of several changed if it has no such
number, nor any number that may count lines, if the cases do not show what does.
New numbers stay within the range seen in the same place, so one seen with one value only stays. Words that recur are
exchanged, others get letters seen in their place. What `printed_shape` finds in all cases holds for the new inputs.
"""

import random
import re
from collections.abc import Sequence

from data_prep.strength.printed_shape import INTEGER, counts_rows, rows_of, shape_of

_TRIES = 400  # in a row without a new input
_LONGEST = 2_000
_PIECES = re.compile(r"(\s+)")


def new_inputs(inputs: Sequence[str], rng: random.Random, count: int) -> list[str]:
    """Up to `count` new inputs, none of them in `inputs`. Long ones are left out: they only relax what all share."""
    inputs = [text for text in inputs if text.strip() and len(text) <= _LONGEST]
    if not inputs:
        return []
    lines_of, fits = [text.split("\n") for text in inputs], shape_of(inputs)
    places = _Places(lines_of)
    seen, found = set(inputs), list[str]()
    tries = 0
    while len(found) < count and tries < _TRIES:
        tries += 1
        text = "\n".join(_changed(rng.choice(lines_of), places, rng))
        if text not in seen and fits(text):
            found.append(text)
            tries = 0
        seen.add(text)
    return found


def _is_integer(word: str) -> bool:
    return INTEGER.fullmatch(word) is not None


_Place = tuple[int, int, int]


class _Places:
    """The words seen in each place: where words have one meaning."""

    def __init__(self, lines_of: Sequence[Sequence[str]]) -> None:
        self.rows_are_counted = counts_rows([rows_of("\n".join(lines)) for lines in lines_of])
        self.second_is_list = all(
            len(lines) > 1 and str(len(lines[1].split())) in lines[0].split() for lines in lines_of
        )
        self.shortest = min(len(lines[1].split()) for lines in lines_of) if self.second_is_list else 0
        self.words: dict[_Place, list[str]] = {}
        for lines in lines_of:
            for number, line in enumerate(lines):
                words = line.split()
                for place, word in enumerate(words):
                    self.words.setdefault(self._place(number, place, len(words)), []).append(word)

    def _place(self, line: int, word: int, words: int) -> _Place:
        """The first lines one by one, and a short line's words one by one unless it is a list with a known size."""
        return (min(line, 2), 0, -1) if self.is_list(line, words) else (min(line, 2), words, word)

    def is_list(self, line: int, words: int) -> bool:
        """Whether all words of a line have one meaning."""
        return words > 4 or (line == 1 and self.second_is_list)

    def known(self, line: int, word: int, words: int) -> list[str]:
        """The words seen where this one is."""
        return self.words[self._place(line, word, words)]


def free_words(lines: Sequence[str], rows_are_counted: bool = True) -> list[tuple[int, int]]:
    """The words, as line and place, that may change: those that give no size."""
    sizes = {
        (number, place)
        for number, line in enumerate(lines)
        for place in _sizes(lines, number, line.split(), rows_are_counted)
    }
    free = [(number, place) for number, line in enumerate(lines) for place in range(len(line.split()))]
    several = sum(bool(line.strip()) for line in lines) > 1
    first_is_sizes = several and not any(number == 0 for number, _ in sizes)
    return [one for one in free if one not in sizes and not (first_is_sizes and one[0] == 0)]


def _sizes(lines: Sequence[str], number: int, words: Sequence[str], rows_are_counted: bool) -> list[int]:
    rest = [line for line in lines[number + 1 :] if line.strip()]
    if not rest:
        return []
    counts = {len(rest), len(rest[0].split()), len(rest[0].strip())}
    if not rows_are_counted:
        counts |= set(range(1, len(rest) + 1))
    return [place for place, word in enumerate(words) if _is_integer(word) and int(word) in counts]


def _changed(lines: Sequence[str], places: _Places, rng: random.Random) -> list[str]:
    changed = _shorter(lines, places.shortest, rng) if places.second_is_list and rng.random() < 0.3 else list(lines)
    free = free_words(changed, places.rows_are_counted)
    for number, place in rng.sample(free, min(len(free), rng.choice((1, 1, 2, 4)))):
        pieces = _PIECES.split(changed[number])
        words = [at for at, piece in enumerate(pieces) if piece.strip()]
        known = places.known(number, place, len(words))
        # Another word of the line in exchange keeps what a change of one would break: a permutation, a sum.
        others = [words[other] for line, other in free if line == number]
        if len(words) > 2 and rng.random() < 0.3 and places.is_list(number, len(words)):
            other = rng.choice(others)
            pieces[words[place]], pieces[other] = pieces[other], pieces[words[place]]
        else:
            pieces[words[place]] = _changed_word(pieces[words[place]], known, rng)
        changed[number] = "".join(pieces)
    return changed


def _shorter(lines: Sequence[str], shortest: int, rng: random.Random) -> list[str]:
    """The lines with some words of the second one left out, and their number in the first changed with them."""
    words, head = lines[1].split(), _PIECES.split(lines[0])
    if head.count(str(len(words))) != 1:
        return list(lines)  # which of them is the size is not known
    kept = sorted(rng.sample(range(len(words)), rng.randint(shortest, len(words))))
    head[head.index(str(len(words)))] = str(len(kept))
    return ["".join(head), " ".join(words[place] for place in kept), *lines[2:]]


def _changed_word(word: str, known: Sequence[str], rng: random.Random) -> str:
    """A word like it. known: the words seen in its place, itself among them."""
    if all(map(_is_integer, known)) and not _are_bits(known):
        values = list(map(int, known))
        low, high = min(values), max(values)
        near = int(word) + rng.choice((-1, 1))
        return str(rng.choice((min(max(near, low), high), rng.choice(values), rng.randint(low, high))))
    if _is_integer(word) and not _are_bits(known):
        return rng.choice([other for other in known if _is_integer(other)])
    if len(word) < 2 or not word.isalnum() or (known.count(word) > 1 and not _are_bits(known)):
        return rng.choice([other for other in known if not _is_integer(other)] or [word])
    letters = list(word)
    letters[rng.randrange(len(letters))] = rng.choice("".join(known))
    return "".join(letters) if rng.random() < 0.7 else "".join(rng.sample(word, len(word)))


def _are_bits(words: Sequence[str]) -> bool:
    """Whether the words are strings of 0 and 1 rather than numbers."""
    return set("".join(words)) <= {"0", "1"} and any(len(word) > 1 for word in words)
