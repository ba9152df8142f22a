"""Functions of a few dependent steps (operations with constants), which the skills write, repair and trace share."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from data_prep.english.operations import NUMBER, NUMBERS, TEXT, WORDS, Constant, Operation, VariableValue

# Parameter names and what a prompt calls them.
_PARAMETERS = {
    "number": (("x", "value", "score", "price", "age", "level", "total", "points", "speed"), "a number"),
    "numbers": (("numbers", "values", "scores", "prices", "ages", "data", "items", "sizes"), "a list of numbers"),
    "text": (("text", "name", "title", "s", "label", "message"), "a string"),
    "words": (("words", "names", "labels", "titles", "tags"), "a list of words"),
}
_VERBS = (
    "adjust",
    "compute",
    "transform",
    "update",
    "process",
    "convert",
    "change",
    "prepare",
    "handle",
    "make",
    "clean",
)

# By level: kinds with their weights, number of steps without the return.
KINDS = {1: {"number": 2, "numbers": 2}, 2: {"number": 2, "numbers": 3, "text": 2}, 3: dict.fromkeys(_PARAMETERS, 1)}
STEPS = {1: (1, 2), 2: (2, 3), 3: (3, 4)}
_EASY = {
    "number": ("add", "subtract", "multiply", "twice", "divide", "cap", "floor"),
    "numbers": ("above", "below", "even", "odd", "add", "multiply", "first"),
}

_VOCABULARY = (
    "apple", "river", "stone", "table", "music", "orange", "silver", "planet", "garden", "window", "tree", "star",
    "road", "letter", "summer", "castle", "bread", "train", "house", "light", "sea", "cat", "owl", "salt", "basket",
    "monster",
)  # fmt: skip
_CASES, _OUTCOMES = 40, 4

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


@dataclass(frozen=True)
class EnglishFunction:
    """A Python function of one parameter; the last step returns."""

    name: str
    variable: str
    kind: str
    steps: tuple[FunctionStep, ...]

    def source(self, docstring: str = "") -> str:
        """The function in Python."""
        body = [f'"""{docstring}"""'] if docstring else []
        body += [line for step in self.steps for line in step.code(self.variable).splitlines()]
        return "\n".join([f"def {self.name}({self.variable}):", *(f"    {line}" for line in body)])

    def key(self) -> str:
        """The function without its names: equal keys are the same problem."""
        return "\n".join(step.code("v") for step in self.steps)

    def takes(self) -> str:
        """What the parameter is, in words."""
        return _PARAMETERS[self.kind][1]

    def states(self, argument: VariableValue) -> list[VariableValue]:
        """The variable's value after each step, then the result."""
        values = [argument]
        for step in self.steps:
            values.append(step.apply(values[-1]))
        return values[1:]

    def outcome(self, argument: VariableValue) -> str:
        """The result in Python; the error's name where the function raises one."""
        try:
            return literal(self.states(argument)[-1])
        except (ValueError, TypeError, IndexError) as error:
            return type(error).__name__

    def call(self, argument: VariableValue) -> str:
        """A call in Python."""
        return f"{self.name}({literal(argument)})"

    def neighbours(self) -> Iterator[tuple[str, "EnglishFunction"]]:
        """The functions with one step misread, forgotten, or exchanged with the next one.

        Each comes with the part of the function that it tests: a step, or a constant of a step; "" for the others.
        """
        *steps, last = self.steps
        for place, step in enumerate(self.steps):
            for constant, other in step.neighbours():
                part = "" if constant is None else f"constant {constant} of step {place}"
                yield part, self._with((*self.steps[:place], other, *self.steps[place + 1 :]))
        for place in range(len(steps)):
            yield f"step {place}", self._with((*steps[:place], *steps[place + 1 :], last))
        for place in range(len(steps) - 1):
            yield "", self._with((*steps[:place], steps[place + 1], steps[place], *steps[place + 2 :], last))

    def _with(self, steps: Sequence[FunctionStep]) -> "EnglishFunction":
        return replace(self, steps=tuple(steps))


def literal(value: VariableValue) -> str:
    """A value in Python, texts in double quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def random_function(rng: random.Random, level: int) -> EnglishFunction:
    """A function of this level; two steps in a row are of different operations."""
    kind = rng.choices(list(KINDS[level]), weights=list(KINDS[level].values()))[0]
    table = TABLES[kind]
    ends = [name for name, operation in table.items() if operation.code.startswith("return") and operation.words]
    moves = [name for name, operation in table.items() if name not in ends and operation.words]
    if level == 1:
        moves = [name for name in moves if name in _EASY[kind]]
    fewest, most = STEPS[level]
    count = most if kind == "number" else rng.randint(fewest, most)
    names: list[str] = []
    while len(names) < count:
        name = rng.choice(moves)
        if name not in names[-1:]:
            names.append(name)
    variable = rng.choice(_PARAMETERS[kind][0])
    steps = tuple(random_step(rng, kind, name) for name in (*names, rng.choice(ends)))
    return EnglishFunction(f"{rng.choice(_VERBS)}_{variable}", variable, kind, steps)


def random_argument(rng: random.Random, kind: str, largest: int = 20) -> VariableValue:
    """An argument for a function of this kind."""
    if kind == "number":
        return rng.randint(1, largest)
    if kind == "numbers":
        return [rng.randint(1, largest) for _ in range(rng.randint(4, 6))]
    if kind == "words":
        return rng.sample(_VOCABULARY, rng.randint(4, 5))
    return " ".join(rng.sample(_VOCABULARY, rng.choice((1, 1, 2))))


@dataclass(frozen=True)
class Cases:
    """Arguments whose results distinguish a function from wrong ones; `wrong`: those that some argument exposes."""

    arguments: tuple[VariableValue, ...]
    wrong: tuple[EnglishFunction, ...]


def distinguishing_cases(rng: random.Random, function: EnglishFunction, least: int = 5) -> Cases | None:
    """At least `least` arguments; None if the function fails on most, or a step or constant changes no result."""
    pool: dict[str, VariableValue] = {}
    for _ in range(_CASES):
        argument = random_argument(rng, function.kind, largest=40 if function.kind == "number" else 20)
        pool.setdefault(literal(argument), argument)
    arguments = [one for one in pool.values() if not function.outcome(one).endswith("Error")]
    parts = list(function.neighbours())
    others = {other.key(): other for _, other in parts}
    exposed = {
        key: {place for place, one in enumerate(arguments) if other.outcome(one) != function.outcome(one)}
        for key, other in others.items()
    }
    exposed = {key: places for key, places in exposed.items() if places}
    tested = {part for part, other in parts if other.key() in exposed}
    varied = len({function.outcome(one) for one in arguments}) >= _OUTCOMES
    if len(arguments) < 2 * least or not varied or not tested.issuperset(part for part, _ in parts):
        return None
    chosen, left = [0, 1], dict(exposed)
    while left or len(chosen) < least:
        left = {key: places for key, places in left.items() if places.isdisjoint(chosen)}
        unused = [place for place in range(len(arguments)) if place not in chosen]
        if not unused or (not left and len(chosen) >= least):
            break
        chosen.append(max(unused, key=lambda place: sum(place in places for places in left.values())))
    return Cases(tuple(arguments[place] for place in chosen), tuple(others[key] for key in exposed))
