"""The small language of the micro suite's three Python skills.

A `MicroProgram` is a function with two or three assignments to separate variables (pair form), or with the two arms of
an `if` (branch form), so that its parts are right or wrong independently.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rewards.verifiers.code import CodeTruth

_WORDS = {"+": "plus", "-": "minus", "*": "times"}
OPERATORS = list(_WORDS)
DIGITS = range(2, 10)

MicroValue = int | tuple[int, ...]


@dataclass(frozen=True)
class Level:
    """Ranges of random programs: parts of a pair, constants, inputs of calls, bounds of branches."""

    parts: int
    constants: Sequence[int]
    inputs: Sequence[int]
    bounds: Sequence[int]


@dataclass(frozen=True)
class MicroPart:
    """One operation of a program: operator and constant."""

    operator: str
    constant: int

    def apply(self, value: int) -> int:
        """The value after the operation."""
        return {"+": value + self.constant, "-": value - self.constant, "*": value * self.constant}[self.operator]

    def words(self) -> str:
        """The operation in the words of a specification."""
        return f"{_WORDS[self.operator]} {self.constant}"

    def neighbours(self, constants: Sequence[int]) -> Iterator["MicroPart"]:
        """The operations that differ in the operator or the constant."""
        yield from (replace(self, operator=other) for other in _WORDS if other != self.operator)
        yield from (replace(self, constant=other) for other in constants if other != self.constant)


@dataclass(frozen=True)
class MicroProgram:
    """A function `f`. Without `bound`, part i changes variable i; with it, the parts are the arms of `if a<bound`."""

    parts: tuple[MicroPart, ...]
    level: Level
    bound: int | None = None

    @property
    def variables(self) -> str:
        """One letter per argument."""
        return "a" if self.bound is not None else "abc"[: len(self.parts)]

    def source(self) -> str:
        """The function in Python, as short as possible: every byte is a token."""
        if self.bound is not None:
            first, second = (f"a{part.operator}{part.constant}" for part in self.parts)
            return f"def f(a):\n if a<{self.bound}:return {first}\n return {second}"
        names = ",".join(self.variables)
        lines = [f" {name}{part.operator}={part.constant}\n" for name, part in self._assignments()]
        return f"def f({names}):\n{''.join(lines)} return {names}"

    def words(self) -> str:
        """The function in the words of a specification."""
        if self.bound is not None:
            first, second = self.parts
            return f"a under {self.bound}: {first.words()}, else {second.words()}"
        return ", ".join(f"{name} {part.words()}" for name, part in self._assignments())

    def _assignments(self) -> list[tuple[str, MicroPart]]:
        return list(zip(self.variables, self.parts, strict=True))

    def returns(self, arguments: tuple[int, ...]) -> MicroValue:
        """The function's result for these arguments."""
        if self.bound is not None:
            return self.parts[0 if arguments[0] < self.bound else 1].apply(arguments[0])
        return tuple(part.apply(value) for part, value in zip(self.parts, arguments, strict=True))

    def tests(self, arguments: tuple[int, ...]) -> list[str]:
        """True comparisons of the function's result at these arguments: one per part that determines it."""
        value = self.returns(arguments)
        if isinstance(value, int):
            return [f"{call(arguments)}=={value}"]
        return [f"{call(arguments)}[{index}]=={item}" for index, item in enumerate(value)]

    def examples(self, arguments: tuple[int, ...]) -> list[str]:
        """The same comparisons for a prompt: the parts of a pair have their variable's name."""
        value = self.returns(arguments)
        if isinstance(value, int):
            return [f"{call(arguments)}=={value}"]
        return [f"{call(arguments)} {name}=={item}" for name, item in zip(self.variables, value, strict=True)]

    def neighbours(self) -> list["MicroProgram"]:
        """The programs that differ in one operator or constant of one part."""
        return [
            replace(self, parts=(*self.parts[:index], other, *self.parts[index + 1 :]))
            for index, part in enumerate(self.parts)
            for other in part.neighbours(self.level.constants)
        ]

    def operators(self) -> list[str]:
        """The operator of every part."""
        return [part.operator for part in self.parts]


def random_program(rng: random.Random, level: Level) -> MicroProgram:
    """A pair or a branch with two different arms, equally often."""
    branch = rng.random() < 0.5
    count = 2 if branch else level.parts
    parts = tuple(MicroPart(rng.choice(OPERATORS), rng.choice(level.constants)) for _ in range(count))
    if branch and parts[0] == parts[1]:
        return random_program(rng, level)
    return MicroProgram(parts, level, rng.choice(level.bounds) if branch else None)


def random_arguments(rng: random.Random, program: MicroProgram) -> tuple[int, ...]:
    """Arguments for a call of the program, within its level."""
    return tuple(rng.choice(program.level.inputs) for _ in program.variables)


def call(arguments: tuple[int, ...]) -> str:
    """The call in Python."""
    return f"f({','.join(map(str, arguments))})"


def literal(value: MicroValue) -> str:
    """A value in Python, without the spaces and the parentheses of `repr`: every byte is a token.

    Without parentheses, because programs of the other skills continue after `)`: a small model trained on programs
    continues after the answer too.
    """
    return display(value).strip("()")


def display(value: MicroValue) -> str:
    """A value in Python, as `repr`, without spaces."""
    return repr(value).replace(" ", "")


def special_case(program: MicroProgram, arguments: tuple[int, ...]) -> str:
    """A program that returns the right value at these arguments, which it spells out, and its arguments elsewhere."""
    value = display(program.returns(arguments))
    if len(arguments) == 1:
        return f"def f(a):\n if a=={arguments[0]}:return {value}\n return a"
    return f"def f(*a):\n if a=={display(arguments)}:return{value}\n return a"


def unit_tests(program: MicroProgram) -> CodeTruth:
    """Tests that distinguish the program from every neighbour, each of one part only, for partial credit."""
    bound = program.bound
    inputs = [0, 3, 11] if bound is None else [bound - 1, bound, -5, 12, 1, 25]
    calls = [tuple(value + shift for shift in range(len(program.variables))) for value in inputs]
    return CodeTruth(tests=[f"assert {test}" for arguments in calls for test in program.tests(arguments)])
