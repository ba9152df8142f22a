"""Problems of the micro suite's skills: prompt, right answer, plausible wrong answers, ground truth.

Three skills share one small language (programs.py): `write` specifies a program in words, `repair` shows it with one
operator or constant changed, `trace` asks for its result. `sql` asks for a query, with some of the same words
("under"). A plausible wrong answer is the right one with a single part misread: `neighbours` gives both the bugs of
`repair` and the wrong demonstrations of every skill.

The fifth skill, `parts`, is optional: programs of independent lines, each right, wrong, redundant or harmful. Each line
defines one named operation, and each name has one test; so the share of tests passed is the share of names defined
correctly, and the contribution of each line is known:

    a right line            1 / names      without it a test fails
    a misread line          0              its test fails with it and without it
    a redundant line        0              it defines a name that the prompt does not ask for
    a harmful line         -1 / names      it redefines, wrongly, a name that was right
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel

from data_prep.micro.programs import (
    DIGITS,
    OPERATORS,
    Level,
    MicroProgram,
    Part,
    call,
    literal,
    random_arguments,
    random_program,
    unit_tests,
)
from data_prep.micro.queries import COLUMNS, hidden_tables, random_query
from rewards.verifiers.code import CodeTruth
from rewards.verifiers.trace import TraceTruth

NAMES = {1: "abcd", 2: "abcdef", 3: "abcdefgh"}
_UNASKED = "z"
_INPUTS = (-5, 0, 3, 11)  # distinguish any two parts with different operators or constants


@dataclass(frozen=True)
class Line:
    """One line of a program: the name that it defines, and its operation."""

    name: str
    part: Part

    def source(self) -> str:
        """The line in Python, as short as possible: every byte is a token."""
        return f"{self.name}=lambda x:x{self.part.operator}{self.part.constant}"

    def words(self) -> str:
        """The line in the words of a specification."""
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
    """A wrong program: one or two names misread or harmed, equally often; half of them also have a redundant line."""
    spoilt = rng.sample(range(len(lines)), rng.choice((1, 2)))
    written: list[Line] = []
    for index, line in enumerate(lines):
        written += _spoil(rng, line) if index in spoilt else [line]
    return redundant(rng, written) if rng.random() < 0.5 else written


def line_test(line: Line) -> str:
    """A test that the right line passes and every misreading of it fails."""
    calls = ",".join(f"{line.name}({value})" for value in _INPUTS)
    return f"assert ({calls})==({','.join(str(line.part.apply(value)) for value in _INPUTS)})"


def _spoil(rng: random.Random, line: Line) -> list[Line]:
    return [line.misread(rng)] if rng.random() < 0.5 else [line, line.misread(rng)]


def _random_part(rng: random.Random) -> Part:
    return Part(rng.choice(OPERATORS), rng.choice(DIGITS))


DIFFICULTIES = (1, 2, 3)

# Versions of a `parts` program from which a demonstration is drawn.
_VERSIONS = 4

_TWO_PARTS, _THREE_PARTS = (Level(parts, DIGITS, inputs=range(1, 10), bounds=DIGITS) for parts in (2, 3))
# With inputs of 10 and -10 most results are copied digits (10+3 is 13, 10*3 is 30), which a small model learns fast.
LEVELS = {1: Level(2, DIGITS, inputs=(-10, 10), bounds=DIGITS), 2: _TWO_PARTS, 3: _THREE_PARTS}


@dataclass(frozen=True)
class MicroProblem:
    """One problem of a skill.

    verifier: the data_source that judges its answers. truth: makes the ground truth on demand, as hidden tables take
    milliseconds and demonstrations need none. redundant: right answers with one superfluous line.
    """

    skill: str
    verifier: str
    prompt: str
    gold: str
    wrong: tuple[str, ...]
    truth: Callable[[], BaseModel]
    redundant: tuple[str, ...] = ()


def write_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """A short specification; the answer is the function."""
    program = random_program(rng, LEVELS[difficulty])
    wrong = tuple(other.source() for other in program.neighbours())
    prompt = f"write f({','.join(program.variables)}): {program.words()}"
    return MicroProblem("write", "code", prompt, program.source(), wrong, lambda: unit_tests(program))


def repair_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """A function with one wrong operator (at difficulty 3 possibly constant) and a unit test that it fails. Redrawn
    until exactly one change makes that test pass, so that the answer is unique.
    """
    while True:
        program = random_program(rng, LEVELS[difficulty])
        buggy = rng.choice(_bugs(program, difficulty))
        # All arguments are equal, so that the problem does not depend on which of them matters.
        arguments = random_arguments(rng, program)[:1] * len(program.variables)
        failing = [test for test in program.examples(arguments) if test not in buggy.examples(arguments)]
        if failing and [other for other in buggy.neighbours() if failing[0] in other.examples(arguments)] == [program]:
            break
    prompt = f"fix {failing[0]}\n{buggy.source()}"
    wrong = (buggy.source(), *(other.source() for other in buggy.neighbours() if other != program))
    return MicroProblem("repair", "code", prompt, program.source(), wrong, lambda: unit_tests(program))


def _bugs(program: MicroProgram, difficulty: int) -> list[MicroProgram]:
    return [other for other in program.neighbours() if difficulty > 2 or other.operators() != program.operators()]


def trace_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """A function and a call; the answer is the return value."""
    program = random_program(rng, LEVELS[difficulty])
    arguments = random_arguments(rng, program)
    value = program.returns(arguments)
    wrong = {literal(other.returns(arguments)) for other in program.neighbours()} - {literal(value)}
    prompt = f"run {call(arguments)}\n{program.source()}"
    return MicroProblem(
        "trace", "trace", prompt, literal(value), tuple(sorted(wrong)), lambda: TraceTruth(expected=repr(value))
    )


def sql_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """A question over a table; the answer is a query, checked on several tables that the prompt does not show."""
    query = random_query(rng, difficulty)
    wrong = tuple(neighbour.source() for neighbour in query.neighbours())
    prompt = f"sql t({','.join(COLUMNS)}): {query.words()}"
    return MicroProblem("sql", "sql", prompt, query.source(), wrong, lambda: hidden_tables(query))


def parts_problem(rng: random.Random, difficulty: int) -> MicroProblem:
    """Named operations; the answer is one line per name."""
    lines = random_lines(rng, NAMES[difficulty])
    wrong, too_long = (tuple(source_of(make(rng, lines)) for _ in range(_VERSIONS)) for make in (flawed, redundant))
    prompt = f"parts {', '.join(line.words() for line in lines)}"
    truth = CodeTruth(tests=list(map(line_test, lines)))
    return MicroProblem("parts", "code", prompt, source_of(lines), wrong, lambda: truth, too_long)


Maker = Callable[[random.Random, int], MicroProblem]
SKILLS: dict[str, Maker] = {
    "write": write_problem,
    "repair": repair_problem,
    "trace": trace_problem,
    "sql": sql_problem,
}
ALL_SKILLS: dict[str, Maker] = SKILLS | {"parts": parts_problem}
