"""SQL tasks over random schemas: `python -m data_prep.sources.sql --out DIR [--levels 1 2 3] [--engine duckdb]`.

The prompt shows two tables, a parent and its children, without rows; the answer is one SELECT. Hidden databases
distinguish it from the queries for misread questions.
"""

import random
import sqlite3
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from data_prep.sources import procedural
from data_prep.sources.source import run, source_parser
from rewards.verifiers.sql import Database, Engine, SqlTruth, SqlValue

# Parent and child in the plural, as tables are named, and in the singular.
_FAMILIES = (
    (("customers", "customer"), ("orders", "order")),
    (("authors", "author"), ("books", "book")),
    (("teams", "team"), ("players", "player")),
    (("departments", "department"), ("employees", "employee")),
    (("cities", "city"), ("shops", "shop")),
    (("schools", "school"), ("pupils", "pupil")),
    (("farms", "farm"), ("animals", "animal")),
    (("harbours", "harbour"), ("ships", "ship")),
)
_NUMBERS = ("price", "age", "weight", "size", "score", "rank", "cost", "height", "distance", "rating", "speed", "stock")
_TEXTS = {
    "colour": ("red", "green", "blue", "white"),
    "status": ("new", "open", "closed", "late"),
    "country": ("France", "Japan", "Peru", "Kenya"),
    "grade": ("low", "middle", "high", "top"),
    "season": ("spring", "summer", "autumn", "winter"),
    "material": ("wood", "steel", "glass", "paper"),
}
_SYLLABLES = ("ba", "do", "ki", "lu", "me", "no", "pa", "ri", "so", "tu")
_PARENTS, _CHILDREN = 5, 9
_LARGEST = 30

_CANDIDATES = 8
_ROUNDS = 40


@dataclass(frozen=True)
class Schema:
    """Two tables: parent(id, name, `kind`) and child(id, `key`, name, `group`, `first`, `second`).

    `kind` and `group` hold texts, `first` and `second` whole numbers; `key` is the id of a parent.
    """

    parent: str
    child: str
    one_parent: str
    kind: str
    group: str
    first: str
    second: str

    @property
    def key(self) -> str:
        """The child's column that names its parent."""
        return f"{self.one_parent}_id"

    def tables(self) -> str:
        """The script that creates the tables."""
        return (
            f"CREATE TABLE {self.parent}(id INTEGER PRIMARY KEY, name TEXT, {self.kind} TEXT);\n"
            f"CREATE TABLE {self.child}(id INTEGER PRIMARY KEY, {self.key} INTEGER REFERENCES {self.parent}(id), "
            f"name TEXT, {self.group} TEXT, {self.first} INTEGER, {self.second} INTEGER);"
        )

    def values(self, column: str) -> tuple[str, ...]:
        """The possible values of a text column."""
        return _TEXTS[column]

    def setup(self, rng: random.Random) -> str:
        """The script of a database with random rows. The numbers in a column are distinct, so that its order is unique;
        one is NULL; at least one parent has no child.
        """
        names = rng.sample([a + b for a in _SYLLABLES for b in _SYLLABLES], _PARENTS + _CHILDREN)
        parents = [(index + 1, names[index], rng.choice(_TEXTS[self.kind])) for index in range(_PARENTS)]
        first, second = (rng.sample(range(1, _LARGEST), _CHILDREN) for _ in range(2))
        with_children = rng.sample(range(1, _PARENTS + 1), _PARENTS - 1)
        null_row = rng.randrange(_CHILDREN)
        children = [
            (
                *(index + 1, rng.choice(with_children), names[_PARENTS + index], rng.choice(_TEXTS[self.group])),
                *("NULL" if index == null_row else first[index], second[index]),
            )
            for index in range(_CHILDREN)
        ]
        return "\n".join([self.tables(), _insert(self.parent, parents), _insert(self.child, children)])


def _insert(table: str, rows: Sequence[tuple[int | str, ...]]) -> str:
    return f"INSERT INTO {table} VALUES " + ", ".join(f"({', '.join(map(_literal, row))})" for row in rows) + ";"


def _literal(cell: int | str) -> str:
    return str(cell) if isinstance(cell, int) or cell == "NULL" else f"'{cell}'"


def random_schema(rng: random.Random) -> Schema:
    """A schema with a random family of tables and distinct columns."""
    (parent, one_parent), (child, _) = rng.choice(_FAMILIES)
    first, second = rng.sample(_NUMBERS, 2)
    kind, group = rng.sample(sorted(_TEXTS), 2)
    return Schema(parent, child, one_parent, kind, group, first, second)


_AGGREGATES = {"highest": "MAX", "lowest": "MIN", "total": "SUM", "average": "AVG"}
_COMPARISONS = {"more than": ">", "less than": "<", "at least": ">=", "at most": "<="}


@dataclass(frozen=True)
class Question:
    """A question in words, its query, and `wrong` queries that answer other questions; `ordered`: the question asks for
    an order of rows.
    """

    words: str
    query: str
    wrong: tuple[str, ...]
    ordered: bool = False


def _listing(rng: random.Random, schema: Schema) -> Question:
    comparison, value = rng.choice(list(_COMPARISONS)), rng.randint(8, 22)

    def query(column: str, sign: str) -> str:
        return f"SELECT name FROM {schema.child} WHERE {column} {sign} {value}"

    wrong = [query(schema.first, sign) for sign in _COMPARISONS.values() if sign != _COMPARISONS[comparison]]
    return Question(
        f"the names of the {schema.child} whose {schema.first} is {comparison} {value}",
        query(schema.first, _COMPARISONS[comparison]),
        (*wrong, query(schema.second, _COMPARISONS[comparison])),
    )


def _aggregate(rng: random.Random, schema: Schema) -> Question:
    word, value = rng.choice(list(_AGGREGATES)), rng.choice(schema.values(schema.group))

    def query(function: str, column: str) -> str:
        return f"SELECT {function}({column}) FROM {schema.child} WHERE {schema.group} = '{value}'"

    wrong = [query(function, schema.first) for function in _AGGREGATES.values() if function != _AGGREGATES[word]]
    right = query(_AGGREGATES[word], schema.first)
    return Question(
        f"the {word} {schema.first} of the {schema.child} whose {schema.group} is {value}",
        right,
        (*wrong, query(_AGGREGATES[word], schema.second), right.partition(" WHERE")[0]),
    )


def _grouping(rng: random.Random, schema: Schema) -> Question:
    word = rng.choice(list(_AGGREGATES))

    def query(function: str, column: str) -> str:
        return f"SELECT {schema.group}, {function}({column}) FROM {schema.child} GROUP BY {schema.group}"

    wrong = [query(function, schema.first) for function in _AGGREGATES.values() if function != _AGGREGATES[word]]
    return Question(
        f"each {schema.group} with the {word} {schema.first} of its {schema.child}",
        query(_AGGREGATES[word], schema.first),
        (*wrong, query(_AGGREGATES[word], schema.second)),
    )


def _ranking(rng: random.Random, schema: Schema) -> Question:
    word, count = rng.choice(["highest", "lowest"]), rng.randint(2, 4)
    direction, other = ("DESC", "ASC") if word == "highest" else ("ASC", "DESC")

    def query(column: str, direction: str, count: int) -> str:
        return f"SELECT name FROM {schema.child} ORDER BY {column} {direction} LIMIT {count}"

    return Question(
        f"the names of the {count} {schema.child} with the {word} {schema.second}, the {word} first",
        query(schema.second, direction, count),
        (
            query(schema.second, other, count),
            query(schema.first, direction, count),
            query(schema.second, direction, count + 1),
        ),
        ordered=True,
    )


def _joining(rng: random.Random, schema: Schema) -> Question:
    value, least = rng.choice(schema.values(schema.kind)), rng.randint(5, 15)
    joined = f"FROM {schema.child} c JOIN {schema.parent} p ON c.{schema.key} = p.id"
    where = f"p.{schema.kind} = '{value}'"
    return Question(
        f"the name of each of the {schema.child} with a {schema.second} over {least} whose {schema.one_parent} has the "
        f"{schema.kind} {value}, together with the name of that {schema.one_parent}",
        f"SELECT c.name, p.name {joined} WHERE {where} AND c.{schema.second} > {least}",
        (
            f"SELECT p.name, c.name {joined} WHERE {where} AND c.{schema.second} > {least}",
            f"SELECT c.name, p.name {joined} WHERE c.{schema.second} > {least}",
            f"SELECT c.name, p.name {joined} WHERE {where}",
            f"SELECT c.name, p.name {joined} WHERE {where} AND c.{schema.first} > {least}",
        ),
    )


def _absence(rng: random.Random, schema: Schema) -> Question:
    value = rng.choice(schema.values(schema.group))
    inner = f"SELECT 1 FROM {schema.child} c WHERE c.{schema.key} = p.id"
    return Question(
        f"the names of the {schema.parent} that have no {schema.child} whose {schema.group} is {value}",
        f"SELECT p.name FROM {schema.parent} p WHERE NOT EXISTS ({inner} AND c.{schema.group} = '{value}')",
        (
            f"SELECT p.name FROM {schema.parent} p WHERE NOT EXISTS ({inner})",
            f"SELECT p.name FROM {schema.parent} p WHERE EXISTS ({inner} AND c.{schema.group} = '{value}')",
            f"SELECT p.name FROM {schema.parent} p WHERE EXISTS ({inner} AND c.{schema.group} <> '{value}')",
        ),
    )


def _counting(rng: random.Random, schema: Schema) -> Question:
    least = rng.randint(2, 3)

    def query(counted: str, sign: str) -> str:
        return (
            f"SELECT p.name, {counted} FROM {schema.parent} p JOIN {schema.child} c ON c.{schema.key} = p.id "
            f"GROUP BY p.id, p.name HAVING COUNT(*) {sign} {least}"
        )

    return Question(
        f"the name of each of the {schema.parent} that have at least {least} {schema.child}, with their number",
        query("COUNT(*)", ">="),
        (query("COUNT(*)", ">"), query("COUNT(*)", "<="), query(f"SUM(c.{schema.second})", ">=")),
    )


# By level: one table; one table grouped or ordered; two tables.
KINDS: dict[int, tuple[Callable[[random.Random, Schema], Question], ...]] = {
    1: (_listing, _aggregate),
    2: (_grouping, _ranking),
    3: (_joining, _absence, _counting),
}


def random_question(rng: random.Random, schema: Schema, level: int) -> Question:
    """A question of the level, 1 to 3."""
    return rng.choice(KINDS[level])(rng, schema)


LEVELS = tuple(KINDS)
_NAMES: dict[Engine, str] = {"sqlite": "SQLite", "duckdb": "DuckDB"}


def draw(rng: random.Random, levels: Sequence[int] = LEVELS, engine: Engine = "sqlite") -> dict[str, Any]:
    """A random problem of one of these levels.

    The expected results are those of SQLite for both engines: the queries are equivalent in both, and a problem for
    which they are not fails its proof (data_prep/sources/source.py) and is refused.
    """
    level = rng.choice(levels)
    while True:
        schema = random_schema(rng)
        question = random_question(rng, schema, level)
        try:
            databases = hidden_databases(question.query, question.wrong, partial(schema.setup, rng))
        except Ambiguous:
            continue
        break
    return {
        "skill": "sql",
        "verifier": "sql",
        "prompt": (
            f"These {_NAMES[engine]} tables are given:\n```sql\n{schema.tables()}\n```\nWrite one query for "
            f"{question.words}. Answer with the query in one SQL code block."
        ),
        "ground_truth": SqlTruth(databases=databases, ordered=question.ordered, engine=engine).model_dump(),
        "solution": question.query,
        "licence": "apache-2.0",
        "notes": {"level": level},
    }


class Ambiguous(ValueError):
    """A wrong query could not be distinguished from the right one: they may be equivalent."""


def hidden_databases(query: str, wrong: Collection[str], new_setup: Callable[[], str]) -> list[Database]:
    """At least two databases such that every wrong query differs from `query` in its result on one of them.

    new_setup: returns the script of a new random database. The queries run outside the sandbox: pass only our own,
    never a model's. Raises Ambiguous.
    """
    undetected = set(wrong)
    chosen: list[Database] = []
    while undetected or len(chosen) < 2:
        if len(chosen) == _ROUNDS:
            raise Ambiguous(f"{sorted(undetected)[0]} could not be distinguished from {query}")
        candidates = [_database(query, new_setup()) for _ in range(_CANDIDATES)]
        survivors = [_indistinguishable(undetected, item) for item in candidates]
        best = min(range(_CANDIDATES), key=lambda index: len(survivors[index]))
        chosen.append(candidates[best])
        undetected = survivors[best]
    return chosen


def _database(query: str, setup: str) -> Database:
    return Database(setup=setup, expected=_run([query], setup)[0])


def _indistinguishable(queries: set[str], database: Database) -> set[str]:
    """The queries that return the expected rows on this database."""
    ordered = sorted(queries)
    results = _run(ordered, database.setup)
    return {query for query, rows in zip(ordered, results, strict=True) if rows == database.expected}


def _run(queries: list[str], setup: str) -> list[list[list[SqlValue]]]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(setup)
        return [[list(row) for row in connection.execute(query)] for query in queries]
    finally:
        connection.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("sql", __doc__)
    procedural.add_limit(parser)
    parser.add_argument("--levels", type=int, nargs="+", choices=LEVELS, default=LEVELS)
    parser.add_argument("--engine", choices=_NAMES, default="sqlite", help="engine that runs the queries")
    options = parser.parse_args(arguments)
    one = partial(draw, levels=tuple(options.levels), engine=options.engine)
    return run("sql", options, ("sql",), lambda: procedural.drafts("sql", one, limit=options.limit, seed=options.seed))


if __name__ == "__main__":
    sys.exit(main())
