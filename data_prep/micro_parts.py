"""The skill `parts`: programs of independent lines, of which each can be right, wrong, redundant or harmful on its own.

Each line defines one operation by a name, and each name has one test; so the share of tests passed is the share of
names that are defined rightly, and what a line adds to it is known:

    a right line            1 / names      without it a test fails
    a misread line          0              its test fails with it and without it
    a redundant line        0              it defines a name that nobody asked for
    a harmful line         -1 / names      it defines a name that was right once more, wrongly
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from data_prep.micro_programs import DIGITS, OPERATORS, Part

NAMES = {1: "abcd", 2: "abcdef", 3: "abcdefgh"}
_UNASKED = "z"
_INPUTS = (-5, 0, 3, 11)  # tell every two parts with different operators or constants apart


@dataclass(frozen=True)
class Line:
    """One line of a program: the name that it defines, and its operation."""

    name: str
    part: Part

    def source(self) -> str:
        """The line in Python, as short as it goes: every byte is a token."""
        return f"{self.name}=lambda x:x{self.part.operator}{self.part.constant}"

    def words(self) -> str:
        """The line as a specification says it."""
        return f"{self.name} {self.part.words()}"

    def misread(self, rng: random.Random) -> "Line":
        """The same name with one operator or constant misread."""
        return replace(self, part=rng.choice(list(self.part.neighbours(DIGITS))))


def source_of(lines: Sequence[Line]) -> str:
    """The program in Python."""
    return "\n".join(line.source() for line in lines)


def random_lines(rng: random.Random, names: str) -> list[Line]:
    """A right line for each name."""
    return [Line(name, _random_part(rng)) for name in names]


def redundant(rng: random.Random, lines: Sequence[Line]) -> list[Line]:
    """A right program with a redundant line somewhere."""
    place = rng.randrange(len(lines) + 1)
    return [*lines[:place], Line(_UNASKED, _random_part(rng)), *lines[place:]]


def flawed(rng: random.Random, lines: Sequence[Line]) -> list[Line]:
    """A wrong program: one or two names misread or harmed, equally often; in half of them a redundant line, too."""
    spoilt = rng.sample(range(len(lines)), rng.choice((1, 2)))
    written = [new for index, line in enumerate(lines) for new in (_spoil(rng, line) if index in spoilt else [line])]
    return redundant(rng, written) if rng.random() < 0.5 else written


def line_test(line: Line) -> str:
    """A test that the right line passes, and every misreading of it fails."""
    calls = ",".join(f"{line.name}({value})" for value in _INPUTS)
    return f"assert ({calls})==({','.join(str(line.part.apply(value)) for value in _INPUTS)})"


def _spoil(rng: random.Random, line: Line) -> list[Line]:
    return [line.misread(rng)] if rng.random() < 0.5 else [line, line.misread(rng)]


def _random_part(rng: random.Random) -> Part:
    return Part(rng.choice(OPERATORS), rng.choice(DIGITS))
