"""Steps of one role, of several programs, in columns: a column holds what is the same step in each of them.

Order counts first. A step that several programs wrote differently at one place stands in one column, and one that a
program lacks or has in addition leaves the columns of its other steps. Code that only moved keeps its column.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

# Scores of two steps with equal code, and of two others, that stand in one column.
_EQUAL, _OTHER = 4, 1
# Products of lengths above this are not compared by order: it would take seconds.
_MOST = 40_000


@dataclass(eq=False)
class _Column:
    codes: set[str] = field(default_factory=set)


def in_columns(programs: Sequence[Sequence[str]]) -> list[list[int]]:
    """For each step of each program, its column, counted from 1 at the last.

    programs: the codes of their steps, in order. The longest are placed first, equal ones once.
    """
    columns: list[_Column] = []
    placed: dict[tuple[str, ...], list[_Column]] = {}
    for program in sorted({tuple(codes) for codes in programs}, key=lambda codes: (-len(codes), codes)):
        placed[program] = _place(columns, program)
    numbers = {column: number for number, column in enumerate(reversed(columns), 1)}
    return [[numbers[column] for column in placed[tuple(codes)]] for codes in programs]


def _place(columns: list[_Column], codes: Sequence[str]) -> list[_Column]:
    """The column of each step; what stands in none of `columns` gets a new one there."""
    pairs = _pairs(columns, codes)
    equal = {step: place for step, place in pairs.items() if codes[step] in columns[place].codes}
    # Another step at its place, not one that moved: the program has the column's code nowhere.
    found = {step: place for step, place in pairs.items() if step in equal or columns[place].codes.isdisjoint(codes)}
    _find_moved(found, columns, codes)
    edges = [(-1, -1), *sorted(equal.items()), (len(codes), len(columns))]
    for (step, place), (next_step, next_place) in pairwise(edges):
        taken = set(found.values())
        waiting = [one for one in range(step + 1, next_step) if one not in found]
        free = [one for one in range(place + 1, next_place) if one not in taken]
        found.update(zip(reversed(waiting), reversed(free), strict=False))
    return _with_new(columns, codes, found, equal)


def _pairs(columns: Sequence[_Column], codes: Sequence[str]) -> dict[int, int]:
    """The place of each step in an alignment that keeps the order of both, with the most equal codes."""
    rows, places = len(codes), len(columns)
    if rows * places > _MOST:
        return {}
    score = [[_EQUAL if code in column.codes else _OTHER for column in columns] for code in codes]
    best = [[0] * (places + 1) for _ in range(rows + 1)]
    for row in range(rows):
        for place in range(places):
            together = best[row][place] + score[row][place]
            best[row + 1][place + 1] = max(together, best[row][place + 1], best[row + 1][place])
    pairs: dict[int, int] = {}
    row, place = rows, places
    while row and place:
        if best[row][place] == best[row - 1][place - 1] + score[row - 1][place - 1]:
            row, place = row - 1, place - 1
            pairs[row] = place
        elif best[row][place] == best[row][place - 1]:
            place -= 1
        else:
            row -= 1
    return pairs


def _find_moved(found: dict[int, int], columns: Sequence[_Column], codes: Sequence[str]) -> None:
    """Add the steps whose code stands in a free column, wherever that is."""
    free: dict[str, list[int]] = {}
    taken = set(found.values())
    for place, column in enumerate(columns):
        if place not in taken:
            for code in column.codes:
                free.setdefault(code, []).append(place)
    for step in reversed(range(len(codes))):
        places = free.get(codes[step], [])
        while step not in found and places:
            place = places.pop()
            if place not in taken:
                found[step] = place
                taken.add(place)


def _with_new(
    columns: list[_Column], codes: Sequence[str], found: dict[int, int], equal: dict[int, int]
) -> list[_Column]:
    """Put the codes into their columns; a new one stands before that of the next step which did not move."""
    own = {step: columns[place] for step, place in found.items()}
    before = len(columns)  # only falls, so that no new column moves the places that are still to come
    for step in reversed(range(len(codes))):
        anchored = max((place for one, place in equal.items() if one < step), default=-1)
        if step not in found:
            own[step] = _Column()
            columns.insert(before, own[step])
        elif step in equal or anchored < found[step] < before:
            before = found[step]
        own[step].codes.add(codes[step])
    return [own[step] for step in range(len(codes))]
