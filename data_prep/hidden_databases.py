"""Hidden databases that distinguish the right query from plausible wrong ones."""

import sqlite3
from collections.abc import Callable, Collection

from rewards.verifiers.sql import Database, SqlValue

_CANDIDATES = 8
_ROUNDS = 40


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
