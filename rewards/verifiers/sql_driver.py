"""Runs one query on several databases; executed as a program inside the sandbox, with the standard library only, and
the package `duckdb` where the engine is DuckDB.

Reads {"engine": "sqlite" | "duckdb", "setups": [script], "query": text, "row_limit": n, "seconds": s} from standard
input and writes one JSON line: {"results": [[row, ...], ...]} or {"error": "syntax" | "runtime" | "timeout",
"message": text}.
"""

import contextlib
import decimal
import json
import sqlite3
import sys
import threading
import time

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
NO_FAULT_OF_THE_QUERY = 3
_LARGEST_BITS = 256
_STEPS_BETWEEN_CLOCK_READINGS = 10_000


def _allow_reading(action, first, second, database, trigger):
    """Refuses ATTACH, PRAGMA, writes and the loading of extensions when the query is compiled."""
    if action == sqlite3.SQLITE_FUNCTION and second == "load_extension":
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _stop(reason):
    """Ends the program where no query is to blame; the exit code says so, since a query may bring the engine down."""
    print(reason, file=sys.stderr)
    sys.exit(NO_FAULT_OF_THE_QUERY)


def _set_up(execute, script):
    """Makes the tables; where that fails the row is wrong and no answer to it can be judged, so the program ends."""
    try:
        execute(script)
    except Exception as error:
        _stop(f"the setup script fails: {error}")


def run_sqlite(setup, query, row_limit, deadline):
    """The rows of a query on a fresh SQLite database, at most one more than `row_limit`."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        _set_up(connection.executescript, setup)
        connection.set_authorizer(_allow_reading)
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CLOCK_READINGS)
        cursor = connection.execute(query)
        if cursor.description is None:
            raise ValueError("no such thing as a query in this text")
        return cursor.fetchmany(row_limit + 1)


def run_duckdb(setup, query, row_limit, deadline):
    """The rows of a query on a fresh DuckDB database, at most one more than `row_limit`."""
    try:
        import duckdb
    except ImportError:
        _stop("duckdb is not installed where the sandbox runs; fix: pip install duckdb there")
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        _set_up(connection.execute, setup)
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        statements = connection.extract_statements(query)
        if len(statements) != 1:
            raise ValueError("one statement was asked for" if statements else "no such thing as a query in this text")
        if statements[0].type != duckdb.StatementType.SELECT:
            raise ValueError(f"not authorized: {statements[0].type.name}")
        # A part of a SELECT may write (WITH ... DELETE, nextval); in such a transaction it can't.
        connection.execute("BEGIN TRANSACTION READ ONLY")
        clock = threading.Timer(max(0.0, deadline - time.monotonic()), connection.interrupt)
        clock.daemon = True
        clock.start()
        try:
            return connection.execute(statements[0]).fetchmany(row_limit + 1)
        finally:
            clock.cancel()


RUNNERS = {"sqlite": run_sqlite, "duckdb": run_duckdb}


def _rows(job, setup, deadline):
    """The rows of a job's query as JSON holds them; ValueError when there are too many, or when it is no query."""
    rows = RUNNERS[job["engine"]](setup, job["query"], job["row_limit"], deadline)
    if len(rows) > job["row_limit"]:
        raise ValueError(f"more than {job['row_limit']} rows")
    return [[_plain(value) for value in row] for row in rows]


def _plain(value):
    """Blobs as hexadecimal text, decimals as numbers, truth values as 1 and 0; what has no number is text, and so is a
    whole number of more digits than JSON carries."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, int) and value.bit_length() > _LARGEST_BITS:
        return hex(value)
    return value if value is None or isinstance(value, int | float | str) else str(value)


def answer_of(job):
    """What is written about a job, as the module says."""
    deadline = time.monotonic() + job["seconds"]
    try:
        return {"results": [_rows(job, setup, deadline) for setup in job["setups"]]}
    except Exception as error:  # of two engines, one of which may be absent; all that is left is the query's fault
        return {"error": _kind(error), "message": str(error)}


def _kind(error):
    text = f"{type(error).__name__} {error}".lower()
    if "interrupt" in text:
        return "timeout"
    compile_errors = (
        "syntax error",
        "incomplete input",
        "unrecognized token",
        "no such",
        "one statement",
        "ambiguous",
        "parserexception",
        "binderexception",
        "catalogexception",
    )
    return "syntax" if any(phrase in text for phrase in compile_errors) else "runtime"


if __name__ == "__main__":
    json.dump(answer_of(json.load(sys.stdin)), sys.stdout)
