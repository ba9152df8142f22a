"""Verifier `sql`: the response is one SELECT whose results must equal the expected ones on every hidden database.

Results are compared row by row, as a multiset, or in order if the question asks for an order. Column names do not
count, the number and order of columns do. NULL equals only NULL. Integers and floats are one type: an expected integer
needs exactly that number, an expected float one within 1e-9 relative or absolute. Text never equals a number. Truth
values are 1 and 0, a blob is its hexadecimal text, dates and other values without a number are text. The query runs in
the sandbox, on SQLite or DuckDB, read-only.
"""

import inspect
import json
import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, Field

from rewards import registry
from rewards.extraction import extract_block
from rewards.settings import JudgeSettings
from rewards.verdict import ErrorKind, Verdict
from rewards.verifiers import sql_driver
from rewards.verifiers.programs import sandbox_at

ROW_LIMIT = 1000
_OUTCOMES: dict[str, ErrorKind] = {"timeout": "timeout", "memory": "runtime", "output_limit": "runtime"}

SqlValue = int | float | str | None


class Database(BaseModel):
    """A hidden database: the script that creates it, and the rows that a correct query returns on it."""

    setup: str = Field(min_length=1)
    expected: list[list[SqlValue]]


Engine = Literal["sqlite", "duckdb"]


class SqlTruth(BaseModel):
    """The databases of one question.

    ordered: whether the order of rows is part of the answer. engine: runs the databases (DuckDB: `pip install duckdb`
    where the sandbox runs). visible: an agent may query the first `visible` databases before it answers.
    """

    databases: list[Database] = Field(min_length=1)
    ordered: bool = False
    engine: Engine = "sqlite"
    visible: int = Field(default=0, ge=0)


def query_in(response: str) -> str:
    """The query of a response, the only part that is judged; "" if there is none."""
    return extract_block(response, "sql") or ""


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Run the query on every database in one sandbox call; the pass ratio is the share with the right result."""
    assert isinstance(truth, SqlTruth)
    query = query_in(response)
    if not query:
        return Verdict.failed("extract")
    answer = await results_of(query, [database.setup for database in truth.databases], truth.engine, settings)
    if "error" in answer:
        return Verdict.failed(answer["error"], well_formed=answer["error"] != "syntax")
    right = [
        same_rows(rows, database.expected, ordered=truth.ordered)
        for rows, database in zip(answer["results"], truth.databases, strict=True)
    ]
    return Verdict.of_ratio(sum(right) / len(right), partial_credit=settings.partial_credit)


async def results_of(query: str, setups: Sequence[str], engine: Engine, settings: JudgeSettings) -> dict[str, Any]:
    """Run a query on the databases that these scripts create, in one sandbox call.

    Returns ``{"results": [rows, ...]}`` or ``{"error": ErrorKind, "message": text}``. Errors of the sandbox propagate;
    RuntimeError if the driver failed.
    """
    job = {
        "engine": engine,
        "setups": list(setups),
        "query": query,
        "row_limit": ROW_LIMIT,
        "seconds": settings.timeout,
    }
    sandbox = sandbox_at(settings.sandbox_url, settings.sandbox_isolation)
    # The driver interrupts a slow query itself; the extra second lets it, before the sandbox kills the driver.
    run = await sandbox.run(
        _driver(), stdin=json.dumps(job), timeout=settings.timeout + 1.0, memory_mb=settings.memory_mb
    )
    if run.outcome in _OUTCOMES:
        return {"error": _OUTCOMES[run.outcome], "message": run.outcome.replace("_", " ")}
    if run.outcome == "passed" and not run.stdout_truncated:
        results: dict[str, Any] = json.loads(run.stdout)
        return results
    if run.return_code == sql_driver.DRIVER_FAILURE:
        raise RuntimeError(f"the SQL driver failed ({run.outcome}): {run.stderr[-500:]}")
    # The query crashed the engine.
    return {"error": "runtime", "message": run.error_type or run.outcome}


@cache
def _driver() -> str:
    return inspect.getsource(sql_driver)


def same_rows(rows: list[list[SqlValue]], expected: list[list[SqlValue]], *, ordered: bool) -> bool:
    """Whether two results are equal under the rules of this module."""
    if len(rows) != len(expected):
        return False
    if not ordered:
        rows, expected = sorted(rows, key=_row_key), sorted(expected, key=_row_key)
    return all(
        len(row) == len(other) and all(map(_same_value, row, other)) for row, other in zip(rows, expected, strict=True)
    )


SortKey = tuple[int, float, str]


def _row_key(row: list[SqlValue]) -> tuple[list[SortKey], list[SortKey]]:
    """Sort key of a row: values rounded to 9 digits first, so that nearly equal rows sort alike, then exact values."""
    return [_value_key(value, 9) for value in row], [_value_key(value, None) for value in row]


def _value_key(value: SqlValue, digits: int | None) -> SortKey:
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, str):
        return (2, 0.0, value)
    return (1, value if digits is None else float(f"{value:.{digits}g}"), "")


def _same_value(left: SqlValue, right: SqlValue) -> bool:
    if left is None or right is None or isinstance(left, str) or isinstance(right, str):
        return type(left) is type(right) and left == right
    if isinstance(right, int):
        return left == right
    return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)


registry.register(registry.Verifier("sql", SqlTruth, judge, query_in))
