"""Questions over a generated schema: in words, as a query, and as the wrong queries that a misreading gives."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from data_prep.sql_schemas import Schema

_AGGREGATES = {"highest": "MAX", "lowest": "MIN", "total": "SUM", "average": "AVG"}
_COMPARISONS = {"more than": ">", "less than": "<", "at least": ">=", "at most": "<="}


@dataclass(frozen=True)
class Question:
    """`wrong`: queries that answer another question; `ordered`: whether the order of rows is asked for."""

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
