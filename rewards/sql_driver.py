"""Runs one query on several SQLite databases; executed as a program inside the sandbox, with the standard library only.

Reads {"setups": [script], "query": text, "row_limit": n, "seconds": s} from standard input and writes one JSON line:
{"results": [[row, ...], ...]} or {"error": "syntax" | "runtime" | "timeout", "message": text}.
"""

import json
import sqlite3
import sys
import time

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_STEPS_BETWEEN_CLOCK_READINGS = 10_000


def _allow_reading(action, first, second, database, trigger):
    """Refuses ATTACH, PRAGMA, writes and the loading of extensions when the query is compiled."""
    if action == sqlite3.SQLITE_FUNCTION and second == "load_extension":
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def run_query(setup, query, row_limit, deadline):
    """The rows of a query on a fresh database; ValueError when there are more than `row_limit`."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(setup)
        connection.set_authorizer(_allow_reading)
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CLOCK_READINGS)
        rows = connection.execute(query).fetchmany(row_limit + 1)
    finally:
        connection.close()
    if len(rows) > row_limit:
        raise ValueError(f"more than {row_limit} rows")
    return [[value.hex() if isinstance(value, bytes) else value for value in row] for row in rows]


def main():
    """One job from standard input to standard output."""
    job = json.load(sys.stdin)
    answer: dict = {}
    deadline = time.monotonic() + job["seconds"]
    try:
        results = [run_query(setup, job["query"], job["row_limit"], deadline) for setup in job["setups"]]
        answer = {"results": results}
    except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError, OverflowError) as error:
        answer = {"error": _kind(error), "message": str(error)}
    json.dump(answer, sys.stdout)


def _kind(error):
    text = str(error)
    if "interrupted" in text:
        return "timeout"
    compile_errors = ("syntax error", "incomplete input", "unrecognized token", "no such", "one statement", "ambiguous")
    return "syntax" if any(phrase in text for phrase in compile_errors) else "runtime"


if __name__ == "__main__":
    main()
