"""New standard inputs: those of a problem's cases with some numbers and words changed; sizes stay. Pure.

A number that counts what follows (the lines left, or the words of the next line) is never changed, nor is the first
line of several if it has no such number. New numbers stay within the range seen in the same place, from 1 on where only
one value was seen.
"""

import random
import re
from collections.abc import Sequence

_TRIES = 30
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_PIECES = re.compile(r"(\s+)")


def new_inputs(inputs: Sequence[str], rng: random.Random, count: int) -> list[str]:
    """Up to `count` new inputs, none of them in `inputs`."""
    lines_of = [text.split("\n") for text in inputs]
    ranges = _ranges(lines_of)
    seen, found = set(inputs), list[str]()
    for _ in range(_TRIES * count):
        text = "\n".join(_changed(rng.choice(lines_of), ranges, rng))
        if text not in seen:
            seen.add(text)
            found.append(text)
            if len(found) == count:
                break
    return found


def _is_integer(word: str) -> bool:
    return _INTEGER.fullmatch(word) is not None


_Place = tuple[int, int]


def _place(line: int, word: int, words: int) -> _Place:
    """Where numbers have one meaning: the first lines one by one, a short line's words one by one."""
    return min(line, 2), word if words <= 4 else -1


def _ranges(lines_of: Sequence[Sequence[str]]) -> dict[_Place, list[int]]:
    ranges: dict[_Place, list[int]] = {}
    for lines in lines_of:
        for number, line in enumerate(lines):
            words = line.split()
            for place, word in enumerate(words):
                if _is_integer(word):
                    ranges.setdefault(_place(number, place, len(words)), []).append(int(word))
    return ranges


def free_words(lines: Sequence[str]) -> list[tuple[int, int]]:
    """The words, as line and place, that may change: those that give no size."""
    sizes = {(number, place) for number, line in enumerate(lines) for place in _sizes(lines, number, line.split())}
    free = [(number, place) for number, line in enumerate(lines) for place in range(len(line.split()))]
    several = sum(bool(line.strip()) for line in lines) > 1
    first_is_sizes = several and not any(number == 0 for number, _ in sizes)
    return [one for one in free if one not in sizes and not (first_is_sizes and one[0] == 0)]


def _sizes(lines: Sequence[str], number: int, words: Sequence[str]) -> list[int]:
    rest = [line for line in lines[number + 1 :] if line.strip()]
    if not rest:
        return []
    counts = {len(rest), len(rest[0].split()), len(rest[0].strip())}
    return [place for place, word in enumerate(words) if _is_integer(word) and int(word) in counts]


def _changed(lines: Sequence[str], ranges: dict[_Place, list[int]], rng: random.Random) -> list[str]:
    free = free_words(lines)
    changed = list(lines)
    for number, place in rng.sample(free, min(len(free), rng.choice((1, 1, 2, 4)))):
        pieces = _PIECES.split(changed[number])
        words = [at for at, piece in enumerate(pieces) if piece.strip()]
        word = pieces[words[place]]
        others = [pieces[at] for at in words]
        known = ranges.get(_place(number, place, len(words)), [])
        pieces[words[place]] = _changed_word(word, others, known, rng)
        changed[number] = "".join(pieces)
    return changed


def _changed_word(word: str, others: Sequence[str], known: Sequence[int], rng: random.Random) -> str:
    if _is_integer(word):
        low, high = min(known), max(known)
        low = min(low, 1) if low == high else low
        near = int(word) + rng.choice((-1, 1))
        return str(rng.choice((min(max(near, low), high), rng.choice(known), rng.randint(low, high))))
    if len(word) < 2 or not word.isalnum():
        return rng.choice(others)
    letters = list(word)
    letters[rng.randrange(len(letters))] = rng.choice(word)
    return "".join(letters) if rng.random() < 0.7 else "".join(rng.sample(word, len(word)))
