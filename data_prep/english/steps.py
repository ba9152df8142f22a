"""Steps: operations with their constants."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from data_prep.english.number_operations import NUMBER, NUMBERS
from data_prep.english.operation import Constant, Operation, VariableValue
from data_prep.english.text_operations import TEXT, WORDS

TABLES = {"number": NUMBER, "numbers": NUMBERS, "text": TEXT, "words": WORDS}


@dataclass(frozen=True)
class FunctionStep:
    """An operation with its constants, in the words of one of its phrases."""

    kind: str
    name: str
    constants: tuple[Constant, ...] = ()
    phrase: int = 0

    @property
    def operation(self) -> Operation:
        """What the step does."""
        return TABLES[self.kind][self.name]

    def code(self, variable: str) -> str:
        """The step in Python: one or several lines."""
        return self.operation.code.format(*self.constants, v=variable)

    def words(self) -> str:
        """The step in English, as an imperative."""
        phrases = self.operation.words
        return phrases[self.phrase % len(phrases)].format(*self.constants)

    def apply(self, value: VariableValue) -> VariableValue:
        """The variable's value after the step, or the returned value."""
        return self.operation.apply(value, *self.constants)

    def neighbours(self) -> Iterator[tuple[int | None, "FunctionStep"]]:
        """The step with its operation or one constant misread, and the place of that constant."""
        for name in self.operation.others:
            other = TABLES[self.kind][name]
            if len(other.draws) == len(self.constants) or name == "exchange":
                yield None, replace(self, name=name)
            elif not other.draws:
                yield None, replace(self, name=name, constants=())
        for place, (constant, values) in enumerate(zip(self.constants, self.operation.draws, strict=True)):
            for other_value in _near(constant, values):
                yield (
                    place,
                    replace(self, constants=(*self.constants[:place], other_value, *self.constants[place + 1 :])),
                )


def _near(constant: Constant, values: Sequence[Constant]) -> list[Constant]:
    if isinstance(constant, int):
        return [constant - 1, constant + 1]
    place = values.index(constant)
    return [values[(place + 1) % len(values)]]


def random_step(rng: random.Random, kind: str, name: str) -> FunctionStep:
    """The operation with random constants and a random phrase."""
    constants = tuple(rng.choice(values) for values in TABLES[kind][name].draws)
    return FunctionStep(kind, name, constants, rng.randrange(len(TABLES[kind][name].words)))
