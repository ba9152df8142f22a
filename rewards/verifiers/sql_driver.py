"""Driver of SQL queries: a program that runs one query on several databases inside the sandbox.

It needs only the standard library, and the package `duckdb` if the engine is DuckDB.

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
DRIVER_FAILURE = 3
_LARGEST_BITS = 256
_STEPS_BETWEEN_CLOCK_READINGS = 10_000


def _allow_reading(action, first, second, database, trigger):
    """Refuse ATTACH, PRAGMA, writes and the loading of extensions when the query is compiled."""
    if action == sqlite3.SQLITE_FUNCTION and second == "load_extension":
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _stop(reason):
    """Exit with a code that distinguishes a failure of the driver from a query that crashes the engine."""
    print(reason, file=sys.stderr)
    sys.exit(DRIVER_FAILURE)


def _set_up(execute, script):
    """Create the tables; if that fails, the row is wrong and no answer to it can be judged, so the program exits."""
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
            raise ValueError("one statement is expected" if statements else "no such thing as a query in this text")
        if statements[0].type != duckdb.StatementType.SELECT:
            raise ValueError(f"not authorized: {statements[0].type.name}")
        # A part of a SELECT may write (WITH ... DELETE, nextval), but not in a read-only transaction.
        connection.execute("BEGIN TRANSACTION READ ONLY")
        timer = threading.Timer(max(0.0, deadline - time.monotonic()), connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            return connection.execute(statements[0]).fetchmany(row_limit + 1)
        finally:
            timer.cancel()


RUNNERS = {"sqlite": run_sqlite, "duckdb": run_duckdb}


def _rows(job, setup, deadline):
    """The rows of a job's query as JSON values; ValueError if there are too many, or if it is not a query."""
    rows = RUNNERS[job["engine"]](setup, job["query"], job["row_limit"], deadline)
    if len(rows) > job["row_limit"]:
        raise ValueError(f"more than {job['row_limit']} rows")
    return [[_plain(value) for value in row] for row in rows]


def _plain(value):
    """A value as JSON: blobs as hexadecimal text, decimals as numbers, truth values as 1 and 0, all other values that
    are not numbers as text, and so are whole numbers too large for JSON.
    """
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
    """The result of a job, as the module describes it."""
    deadline = time.monotonic() + job["seconds"]
    try:
        return {"results": [_rows(job, setup, deadline) for setup in job["setups"]]}
    except Exception as error:  # any class: the engines have their own. Failures not due to the query have exited
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
