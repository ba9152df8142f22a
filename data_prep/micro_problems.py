"""The four skills of the micro suite as problems: prompt, right answer, plausible wrong answers, ground truth.

Three skills share one small language: a `Program` is one to three assignments on separate variables (`pair` form) or
two arms of an `if` (`branch` form), so that its parts can be right or wrong on their own. `write` gives it in words,
`repair` gives it with one operator or constant changed, `trace` asks what it returns. `sql` asks a `Query` in the
same words ("over", "under"). A plausible wrong answer is always the right one with a single part misread, so one
notion, `neighbours`, serves the bugs of `repair` and the wrong demonstrations of every skill.
"""

import random
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from pydantic import BaseModel

from rewards.code import CodeTruth
from rewards.sql import Database, SqlTruth, Value
from rewards.trace import TraceTruth

MIN_DIFFICULTY, MAX_DIFFICULTY = 1, 3

_WORDS = {"+": "plus", "-": "minus", "*": "times"}
_COMPARISON_WORDS = {"<": "under", ">": "over", "=": "is"}
_CONSTANTS = range(2, 10)
_INPUTS = range(1, 10)


@dataclass(frozen=True)
class Problem:
    """One problem of a skill; `verifier` is the data_source that judges its answers with the truth that `truth()` makes
    (made when asked for: hidden databases take milliseconds, and demonstrations need none).
    """

    skill: str
    verifier: str
    prompt: str
    gold: str
    wrong: tuple[str, ...]
    truth: Callable[[], BaseModel]


@dataclass(frozen=True)
class Part:
    """One operation of a program: operator and constant."""

    operator: str
    constant: int

    def apply(self, value: int) -> int:
        return {"+": value + self.constant, "-": value - self.constant, "*": value * self.constant}[self.operator]

    def words(self) -> str:
        return f"{_WORDS[self.operator]} {self.constant}"

    def neighbours(self) -> Iterator["Part"]:
        yield from (replace(self, operator=other) for other in _WORDS if other != self.operator)
        yield from (replace(self, constant=other) for other in _CONSTANTS if other != self.constant)


@dataclass(frozen=True)
class Program:
    """A function `f`. Without `bound`, part i changes variable i; with it, the parts are the arms of `if a<bound`."""

    parts: tuple[Part, ...]
    bound: int | None = None

    @property
    def variables(self) -> str:
        return "a" if self.bound is not None else "abc"[: len(self.parts)]

    def source(self) -> str:
        if self.bound is not None:
            first, second = (f"a{part.operator}{part.constant}" for part in self.parts)
            return f"def f(a):\n if a<{self.bound}:return {first}\n return {second}"
        names = ",".join(self.variables)
        lines = [f" {name}{part.operator}={part.constant}\n" for name, part in zip(names[::2], self.parts, strict=True)]
        return f"def f({names}):\n{''.join(lines)} return {names}"

    def words(self) -> str:
        if self.bound is not None:
            first, second = self.parts
            return f"a under {self.bound}: {first.words()}, else {second.words()}"
        return ", ".join(f"{name} {part.words()}" for name, part in zip(self.variables, self.parts, strict=True))

    def returns(self, arguments: tuple[int, ...]) -> int | tuple[int, ...]:
        if self.bound is not None:
            return self.parts[0 if arguments[0] < self.bound else 1].apply(arguments[0])
        values = tuple(part.apply(value) for part, value in zip(self.parts, arguments, strict=True))
        return values if len(values) > 1 else values[0]

    def neighbours(self) -> list["Program"]:
        """The programs that differ in one operator or constant of one part."""
        return [
            replace(self, parts=(*self.parts[:index], other, *self.parts[index + 1 :]))
            for index, part in enumerate(self.parts)
            for other in part.neighbours()
        ]


def random_program(rng: random.Random, difficulty: int) -> Program:
    """Difficulty 1: one part; 2: two parts; 3: three, or two arms with a bound."""
    branch = difficulty > 1 and rng.random() < 0.5
    count = 2 if branch else difficulty
    parts = tuple(Part(rng.choice(list(_WORDS)), rng.choice(_CONSTANTS)) for _ in range(count))
    if branch and parts[0] == parts[1]:
        return random_program(rng, difficulty)
    return Program(parts, rng.randint(3, 7) if branch else None)


def _call(arguments: tuple[int, ...]) -> str:
    return f"f({','.join(map(str, arguments))})"


def _random_arguments(rng: random.Random, program: Program) -> tuple[int, ...]:
    return tuple(rng.choice(_INPUTS) for _ in program.variables)


def unit_tests(program: Program) -> CodeTruth:
    """Tests that tell the program from every neighbour; each looks at one part only, so partial credit exists."""
    bound = program.bound
    inputs = [0, 3, 11] if bound is None else [bound - 1, bound, -5, 12, 1, 25]
    tests = []
    for value in inputs:
        arguments = tuple(value + shift for shift in range(len(program.variables)))
        result = program.returns(arguments)
        if isinstance(result, tuple):
            tests += [f"assert {_call(arguments)}[{index}] == {item}" for index, item in enumerate(result)]
        else:
            tests.append(f"assert {_call(arguments)} == {result}")
    return CodeTruth(tests=tests)


def write_problem(rng: random.Random, difficulty: int) -> Problem:
    """A short specification; the answer is the function."""
    program = random_program(rng, difficulty)
    wrong = tuple(other.source() for other in program.neighbours())
    prompt = f"write f({','.join(program.variables)}): {program.words()}"
    return Problem("write", "code", prompt, program.source(), wrong, lambda: unit_tests(program))


def repair_problem(rng: random.Random, difficulty: int) -> Problem:
    """A function with one wrong operator (from difficulty 3 on, or constant) and a call with the value that it should
    return; drawn until one single change explains that value, so that the answer is determined.
    """
    while True:
        program, arguments = random_program(rng, difficulty), None
        candidates = [
            other for other in program.neighbours() if difficulty > 2 or _operators(other) != _operators(program)
        ]
        buggy = rng.choice(candidates)
        arguments = _random_arguments(rng, program)
        expected = program.returns(arguments)
        explains = [other for other in buggy.neighbours() if other.returns(arguments) == expected]
        if buggy.returns(arguments) != expected and explains == [program]:
            break
    prompt = f"fix {_call(arguments)}={_literal(expected)}\n{buggy.source()}"
    wrong = (buggy.source(), *(other.source() for other in buggy.neighbours() if other != program))
    return Problem("repair", "code", prompt, program.source(), wrong, lambda: unit_tests(program))


def _operators(program: Program) -> list[str]:
    return [part.operator for part in program.parts]


def trace_problem(rng: random.Random, difficulty: int) -> Problem:
    """A function and a call; the answer is the value returned."""
    program = random_program(rng, difficulty)
    arguments = _random_arguments(rng, program)
    value = program.returns(arguments)
    wrong = {_literal(other.returns(arguments)) for other in program.neighbours()} - {_literal(value)}
    prompt = f"run {_call(arguments)}\n{program.source()}"
    return Problem(
        "trace", "trace", prompt, _literal(value), tuple(sorted(wrong)), lambda: TraceTruth(expected=repr(value))
    )


def _literal(value: int | tuple[int, ...]) -> str:
    """Without the blanks of `repr`: every byte is a token."""
    return repr(value).replace(" ", "")


@dataclass(frozen=True)
class Query:
    """An aggregate under a condition, or a column in the order of another (`comparison` None)."""

    aggregate: str
    column: str
    other: str
    comparison: str | None
    bound: int

    def source(self) -> str:
        if self.comparison is None:
            return f"SELECT {self.column} FROM t ORDER BY {self.other}{self.aggregate}"
        return f"SELECT {self.aggregate}({self.column}) FROM t WHERE {self.other}{self.comparison}{self.bound}"

    def words(self) -> str:
        if self.comparison is None:
            return f"{self.column} by {self.other}{' down' if self.aggregate else ' up'}"
        return f"{self.aggregate} {self.column} where {self.other} {_COMPARISON_WORDS[self.comparison]} {self.bound}"

    def neighbours(self) -> list["Query"]:
        aggregates = ("", " DESC") if self.comparison is None else _AGGREGATES
        others = [replace(self, aggregate=item) for item in aggregates]
        others += [replace(self, column=item) for item in _COLUMNS if item != self.other]
        others += [replace(self, other=item) for item in _COLUMNS if item != self.column]
        if self.comparison is not None:
            others += [replace(self, comparison=item) for item in _COMPARISON_WORDS]
            others += [replace(self, bound=item) for item in _CONSTANTS]
        return [other for other in others if other != self]


_AGGREGATES = ("max", "min", "sum", "count")
_COLUMNS = ("a", "b", "c", "d")
_CELLS = range(-2, 14)
_ROWS = 6
_CANDIDATES = 8


def sql_problem(rng: random.Random, difficulty: int) -> Problem:
    """A question over a table t(a,b,c,d); the answer is a query, checked on tables that the prompt does not show.

    Difficulty 1 asks for an order, 2 and 3 for an aggregate under a condition.
    """
    column, other = rng.sample(_COLUMNS, 2)
    if difficulty == 1 or rng.random() < 0.2:
        query = Query(rng.choice(("", " DESC")), column, other, None, 0)
    else:
        query = Query(
            rng.choice(_AGGREGATES), column, other, rng.choice(list(_COMPARISON_WORDS)), rng.choice(_CONSTANTS)
        )
    wrong = tuple(neighbour.source() for neighbour in query.neighbours())
    prompt = f"sql t({','.join(_COLUMNS)}): {query.words()}"
    return Problem("sql", "sql", prompt, query.source(), wrong, lambda: sql_truth(query))


def sql_truth(query: Query) -> SqlTruth:
    """Hidden tables with the query's results on them."""
    return SqlTruth(databases=_databases(query), ordered=query.comparison is None)


@cache
def _databases(query: Query) -> list[Database]:
    """A few tables on which no neighbour gives the query's results everywhere; always the same for the same query."""
    rng = random.Random(query.source())
    undetected = {neighbour.source() for neighbour in query.neighbours()}
    chosen: list[Database] = []
    while undetected or len(chosen) < 2:
        candidates = [_random_database(rng, query) for _ in range(_CANDIDATES)]
        survivors = [_indistinguishable(undetected, item) for item in candidates]
        best = min(range(_CANDIDATES), key=lambda index: len(survivors[index]))
        chosen.append(candidates[best])
        undetected = survivors[best]
    return chosen


def _random_database(rng: random.Random, query: Query) -> Database:
    """Distinct small integers and some NULLs; the condition's bound (twice) and its neighbours are always there."""
    columns = {name: rng.sample(_CELLS, _ROWS) for name in _COLUMNS}
    if query.comparison is not None:
        near = [query.bound - 1, query.bound, query.bound, query.bound + 1]
        far = [value for value in _CELLS if value not in near]
        columns[query.other] = rng.sample(near + rng.sample(far, _ROWS - len(near)), _ROWS)
    cells = {name: [str(value) for value in values] for name, values in columns.items()}
    for values in cells.values():
        if rng.random() < 0.5:
            values[rng.randrange(_ROWS)] = "NULL"
    rows = ",".join(f"({','.join(row)})" for row in zip(*cells.values(), strict=True))
    setup = f"CREATE TABLE t({','.join(f'{name} INTEGER' for name in _COLUMNS)});INSERT INTO t VALUES{rows}"
    return Database(setup=setup, expected=_run([query.source()], setup)[0])


def _indistinguishable(queries: set[str], database: Database) -> set[str]:
    """The queries that give the expected rows on this database."""
    ordered = sorted(queries)
    results = _run(ordered, database.setup)
    return {query for query, rows in zip(ordered, results, strict=True) if rows == database.expected}


def _run(queries: list[str], setup: str) -> list[list[list[Value]]]:
    """Results of queries of our own making (never of a model's)."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(setup)
        return [[list(row) for row in connection.execute(query)] for query in queries]
    finally:
        connection.close()


SKILLS: dict[str, Callable[[random.Random, int], Problem]] = {
    "write": write_problem,
    "repair": repair_problem,
    "trace": trace_problem,
    "sql": sql_problem,
}
