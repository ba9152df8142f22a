"""Questions of the micro suite's SQL skill, and hidden tables that distinguish right from plausible wrong answers."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from data_prep.sources.sql import hidden_databases
from rewards.verifiers.sql import SqlTruth

COLUMNS = ("a", "b", "c", "d")
_AGGREGATES = ("max", "min", "sum", "count")
_DIRECTIONS = {"": "up", " DESC": "down"}
_COMPARISONS = {"<": "under", ">": "over", "=": "is"}
_BOUNDS = range(2, 10)

_CELLS = range(-2, 14)
_ROWS = 6


@dataclass(frozen=True)
class Condition:
    """A comparison of a column with a constant."""

    column: str
    comparison: str
    bound: int

    def source(self) -> str:
        """The condition in SQL."""
        return f"{self.column}{self.comparison}{self.bound}"

    def words(self) -> str:
        """The condition in the words of a question."""
        return f"{self.column} {_COMPARISONS[self.comparison]} {self.bound}"

    def neighbours(self) -> Iterator["Condition"]:
        """The conditions that differ in the column, the comparison or the bound."""
        yield from (replace(self, column=other) for other in COLUMNS if other != self.column)
        yield from (replace(self, comparison=other) for other in _COMPARISONS if other != self.comparison)
        yield from (replace(self, bound=other) for other in _BOUNDS if other != self.bound)


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of a column under conditions on other columns."""

    function: str
    column: str
    conditions: tuple[Condition, ...]

    ordered = False

    def source(self) -> str:
        """The query in SQL."""
        where = " AND ".join(condition.source() for condition in self.conditions)
        return f"SELECT {self.function}({self.column}) FROM t WHERE {where}"

    def words(self) -> str:
        """The query as a question states it."""
        where = " and ".join(condition.words() for condition in self.conditions)
        return f"{self.function} {self.column} where {where}"

    def neighbours(self) -> Iterator["Aggregate"]:
        """The queries that differ in one name, comparison or constant."""
        taken = {condition.column for condition in self.conditions}
        yield from (replace(self, function=other) for other in _AGGREGATES if other != self.function)
        yield from (replace(self, column=other) for other in COLUMNS if other not in taken | {self.column})
        for index, condition in enumerate(self.conditions):
            for other in condition.neighbours():
                if other.column == condition.column or other.column not in taken | {self.column}:
                    changed = (*self.conditions[:index], other, *self.conditions[index + 1 :])
                    yield replace(self, conditions=changed)


@dataclass(frozen=True)
class Listing:
    """A column, ordered by another column."""

    column: str
    key: str
    direction: str

    ordered = True
    conditions: tuple[Condition, ...] = ()

    def source(self) -> str:
        """The query in SQL."""
        return f"SELECT {self.column} FROM t ORDER BY {self.key}{self.direction}"

    def words(self) -> str:
        """The query as a question states it."""
        return f"{self.column} by {self.key} {_DIRECTIONS[self.direction]}"

    def neighbours(self) -> Iterator["Listing"]:
        """The queries that differ in one column or in the direction."""
        yield from (replace(self, direction=other) for other in _DIRECTIONS if other != self.direction)
        others = [column for column in COLUMNS if column not in (self.column, self.key)]
        yield from (replace(self, column=other) for other in others)
        yield from (replace(self, key=other) for other in others)


Query = Aggregate | Listing


def random_query(rng: random.Random, difficulty: int) -> Query:
    """A listing in one of ten draws, else an aggregate with one condition, or two at difficulty 3."""
    column, *others = rng.sample(COLUMNS, 3)
    if rng.random() < 0.1:
        return Listing(column, others[0], rng.choice(list(_DIRECTIONS)))
    conditions = [Condition(name, rng.choice(list(_COMPARISONS)), rng.choice(_BOUNDS)) for name in others]
    return Aggregate(rng.choice(_AGGREGATES), column, tuple(conditions[: 2 if difficulty > 2 else 1]))


@cache
def hidden_tables(query: Query) -> SqlTruth:
    """A few tables such that each neighbour's result differs from the query's on one of them; deterministic."""
    rng = random.Random(query.source())
    wrong = {neighbour.source() for neighbour in query.neighbours()}
    databases = hidden_databases(query.source(), wrong, lambda: _random_setup(rng, query))
    return SqlTruth(databases=databases, ordered=query.ordered)


def _random_setup(rng: random.Random, query: Query) -> str:
    """Distinct small integers and some NULLs; always with a condition's bound (twice) and the integers next to it."""
    columns = {name: rng.sample(_CELLS, _ROWS) for name in COLUMNS}
    for condition in query.conditions:
        near = [condition.bound - 1, condition.bound, condition.bound, condition.bound + 1]
        far = [value for value in _CELLS if value not in near]
        columns[condition.column] = rng.sample(near + rng.sample(far, _ROWS - len(near)), _ROWS)
    cells = {name: [str(value) for value in values] for name, values in columns.items()}
    for values in cells.values():
        if rng.random() < 0.5:
            values[rng.randrange(_ROWS)] = "NULL"
    rows = ",".join(f"({','.join(row)})" for row in zip(*cells.values(), strict=True))
    return f"CREATE TABLE t({','.join(f'{name} INTEGER' for name in COLUMNS)});INSERT INTO t VALUES{rows}"
