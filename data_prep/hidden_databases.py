"""Hidden databases that tell the right query from plausible wrong ones."""

import sqlite3
from collections.abc import Callable, Collection

from rewards.verifiers.sql import Database, Value

_CANDIDATES = 8
_ROUNDS = 40


class Ambiguous(ValueError):
    """Some wrong query could not be told from the right one: they may mean the same."""


def hidden_databases(query: str, wrong: Collection[str], new_setup: Callable[[], str]) -> list[Database]:
    """At least two databases such that every wrong query gives another result than `query` on one of them.

    new_setup: the script of a new random database. All queries are of our own making (never a model's). Raises
    Ambiguous.
    """
    undetected = set(wrong)
    chosen: list[Database] = []
    while undetected or len(chosen) < 2:
        if len(chosen) == _ROUNDS:
            raise Ambiguous(f"{sorted(undetected)[0]} could not be told from {query}")
        candidates = [_database(query, new_setup()) for _ in range(_CANDIDATES)]
        survivors = [_indistinguishable(undetected, item) for item in candidates]
        best = min(range(_CANDIDATES), key=lambda index: len(survivors[index]))
        chosen.append(candidates[best])
        undetected = survivors[best]
    return chosen


def _database(query: str, setup: str) -> Database:
    return Database(setup=setup, expected=_run([query], setup)[0])


def _indistinguishable(queries: set[str], database: Database) -> set[str]:
    """The queries that give the expected rows on this database."""
    ordered = sorted(queries)
    results = _run(ordered, database.setup)
    return {query for query, rows in zip(ordered, results, strict=True) if rows == database.expected}


def _run(queries: list[str], setup: str) -> list[list[list[Value]]]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(setup)
        return [[list(row) for row in connection.execute(query)] for query in queries]
    finally:
        connection.close()
