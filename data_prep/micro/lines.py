"""Programs of named lines whose credits are known: independent ones (`parts`), and a `chain` of dependent ones.

Each line defines one named operation, and each of the n names has one test, so the share of tests passed is the share
of names defined correctly. A line of `parts` changes the argument (`c=lambda x:x+3`), a line of `chain` the result of
the line before (`c=lambda x:b(x)+3`). Credit of a line by deletion, counting the asked lines from 0:

                          parts     chain
    a right line i        1/n       (m-i)/n, where m is the first wrong name, n if none is
    a misread line        0         0          its test fails with it and without it
    a line after it       1/n       0          nothing that needs a wrong name can pass
    a redundant line      0         0          it defines a name that the prompt does not ask for
    a harmful line m      -1/n      -(n-m)/n   it redefines, wrongly, a name that was right; alone in its program
    the line that it      0         0
    redefines
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from data_prep.micro.programs import DIGITS, OPERATORS, MicroPart

NAMES = {1: "abcd", 2: "abcdefgh", 3: "abcdefghijklmnop"}  # by difficulty
REDUNDANT_SHARE = 0.5  # programs with a superfluous line
_UNASKED = "z"
_INPUTS = (-5, 0, 3, 11)  # distinguish any two parts with different operators or constants


@dataclass(frozen=True)
class ProgramLine:
    """One line of a program: the name that it defines, and its operation.

    before: the name whose result it changes; "" for the argument.
    """

    name: str
    part: MicroPart
    before: str = ""

    def source(self) -> str:
        """The line in Python, as short as possible: every byte is a token."""
        operand = f"{self.before}(x)" if self.before else "x"
        return f"{self.name}=lambda x:{operand}{self.part.operator}{self.part.constant}"

    def words(self) -> str:
        """The line in the words of a specification."""
        return f"{self.name} {self.part.words()}"

    def misread(self, rng: random.Random) -> "ProgramLine":
        """The same name with one operator or constant misread."""
        return replace(self, part=rng.choice(list(self.part.neighbours(DIGITS))))


def source_of(lines: Sequence[ProgramLine]) -> str:
    """The program in Python."""
    return "\n".join(line.source() for line in lines)


def random_lines(rng: random.Random, names: str, *, chained: bool = False) -> list[ProgramLine]:
    """A right line for each name."""
    before = ["", *names[:-1]] if chained else [""] * len(names)
    return [ProgramLine(name, _random_part(rng), other) for name, other in zip(names, before, strict=True)]


def redundant(rng: random.Random, lines: Sequence[ProgramLine]) -> list[ProgramLine]:
    """The program with a redundant line somewhere; in a chain it changes the result of the line above it."""
    place = rng.randrange(len(lines) + 1)
    before = lines[place - 1].name if place and any(line.before for line in lines) else ""
    return [*lines[:place], ProgramLine(_UNASKED, _random_part(rng), before), *lines[place:]]


def flawed(rng: random.Random, lines: Sequence[ProgramLine]) -> list[ProgramLine]:
    """A wrong program: one or two names misread or harmed, equally often; half of them also have a redundant line."""
    corrupted = rng.sample(range(len(lines)), rng.choice((1, 2)))
    written: list[ProgramLine] = []
    for index, line in enumerate(lines):
        written += _corrupt(rng, line) if index in corrupted else [line]
    return redundant(rng, written) if rng.random() < REDUNDANT_SHARE else written


def with_wrong_lines(rng: random.Random, lines: Sequence[ProgramLine], share: float) -> tuple[list[ProgramLine], bool]:
    """A program in which each name is wrong with probability `share`, misread or harmed, and whether all are right.

    Half of the programs also have a redundant line.
    """
    written: list[ProgramLine] = []
    correct = True
    for line in lines:
        wrong = rng.random() < share
        written += _corrupt(rng, line) if wrong else [line]
        correct = correct and not wrong
    return (redundant(rng, written) if rng.random() < REDUNDANT_SHARE else written), correct


def line_tests(lines: Sequence[ProgramLine]) -> list[str]:
    """A test for each line of a right program, which every misreading of that line fails."""
    results: dict[str, list[int]] = {"": list(_INPUTS)}
    tests = []
    for line in lines:
        values = results[line.name] = [line.part.apply(value) for value in results[line.before]]
        calls = ",".join(f"{line.name}({value})" for value in _INPUTS)
        tests.append(f"assert ({calls})==({','.join(map(str, values))})")
    return tests


def _corrupt(rng: random.Random, line: ProgramLine) -> list[ProgramLine]:
    return [line.misread(rng)] if rng.random() < 0.5 else [line, line.misread(rng)]


def _random_part(rng: random.Random) -> MicroPart:
    return MicroPart(rng.choice(OPERATORS), rng.choice(DIGITS))
