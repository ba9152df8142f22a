"""Verifier `sql`: results decide, on hidden tables; nothing but reading is allowed."""

import asyncio
import time

import pytest

from rewards import compute_score
from rewards.sql import Database, SqlTruth, same_rows

SETUP = "CREATE TABLE t(a INTEGER,b REAL,c TEXT);INSERT INTO t VALUES"
ROWS = "(1,2.5,'x'),(2,NULL,'y'),(3,0.5,NULL)"
OTHER = "(4,2.5,'x'),(7,1.0,'y')"


def truth(*expected, ordered=False):
    databases = [
        Database(setup=SETUP + rows, expected=result) for rows, result in zip((ROWS, OTHER), expected, strict=True)
    ]
    return SqlTruth(databases=databases, ordered=ordered).model_dump_json()


LARGEST = truth([[3]], [[7]])
COLUMN = truth([[3], [2], [1]], [[7], [4]], ordered=True)


async def judged(query, ground_truth=LARGEST, **settings):
    result = await compute_score("sql", query, ground_truth, **settings)
    return result["score"], result["error"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT max(a) FROM t",
        "select max(a) as anything from t;",
        "```sql\nSELECT a FROM t ORDER BY a DESC LIMIT 1\n```",
        "WITH u AS (SELECT a FROM t) SELECT max(a) FROM u",
        "SELECT max(a) + 0.0 FROM t",
        "SELECT max(a) FROM t -- a comment",
    ],
)
async def test_any_query_with_the_right_result_is_right(query):
    assert await judged(query) == (1.0, "none")


@pytest.mark.parametrize(
    ("query", "score", "error"),
    [
        ("SELECT 3", 0.5, "wrong_answer"),
        ("SELECT min(a) FROM t", 0.0, "wrong_answer"),
        ("SELECT max(a), 1 FROM t", 0.0, "wrong_answer"),
        ("SELECT '3'", 0.0, "wrong_answer"),
        ("SELECT a FROM t WHERE 0", 0.0, "wrong_answer"),
        ("SELEC max(a) FROM t", 0.0, "syntax"),
        ("SELECT max(z) FROM t", 0.0, "syntax"),
        ("SELECT max(a) FROM u", 0.0, "syntax"),
        ("SELECT 1; SELECT 2", 0.0, "syntax"),
        ("-- nothing", 0.0, "syntax"),
        ("```python\nx\n```", 0.0, "extract"),
    ],
)
async def test_a_wrong_query_is_named(query, score, error):
    assert await judged(query) == (score, error)


@pytest.mark.parametrize(
    "query",
    [
        "ATTACH '/tmp/other.db' AS other",
        "PRAGMA writable_schema=1",
        "DELETE FROM t",
        "INSERT INTO t VALUES(9,9,'z') RETURNING 7",
        "CREATE TABLE u(a)",
        "DROP TABLE t",
        "SELECT load_extension('x')",
        "VACUUM INTO '/tmp/copy.db'",
        "BEGIN",
    ],
)
async def test_nothing_but_reading_is_allowed(query):
    assert await judged(query) == (0.0, "runtime")


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT max(i) FROM n",
        "SELECT sum(a.a) FROM " + ",".join(f"t {name}" for name in "abcdefghijklmnopqrstuvwxyz"),
    ],
)
async def test_a_query_without_end_is_stopped(query):
    started = time.monotonic()
    assert await judged(query, timeout=0.5) == (0.0, "timeout")
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize(
    "query",
    [
        "SELECT hex(zeroblob(900000000))",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i FROM n",
    ],
)
async def test_a_result_without_end_is_a_failure(query):
    score, error = await judged(query, timeout=2.0, memory_mb=256)
    assert score == 0.0
    assert error in ("runtime", "timeout")


async def test_order_counts_only_where_it_is_asked_for():
    assert await judged("SELECT a FROM t ORDER BY a DESC", COLUMN) == (1.0, "none")
    assert await judged("SELECT a FROM t ORDER BY a", COLUMN) == (0.0, "wrong_answer")
    free = truth([[3], [2], [1]], [[7], [4]])
    assert await judged("SELECT a FROM t ORDER BY a", free) == (1.0, "none")


@pytest.mark.parametrize(
    ("rows", "expected", "same"),
    [
        ([[None]], [[None]], True),
        ([[None]], [[0]], False),
        ([[None]], [[""]], False),
        ([[1]], [[1.0]], True),
        ([[0.1 + 0.2]], [[0.3]], True),
        ([[1.0001]], [[1.0]], False),
        ([["1"]], [[1]], False),
        ([[1, 2]], [[2, 1]], False),
        ([[1], [1]], [[1]], False),
        ([[1], [2], [1]], [[2], [1], [1]], True),
        ([[None], ["a"], [2]], [[2], [None], ["a"]], True),
        ([[float("inf")]], [[float("inf")]], True),
        ([], [], True),
    ],
)
def test_the_rules_of_comparison(rows, expected, same):
    assert same_rows(rows, expected, ordered=False) is same


async def test_many_queries_at_once_are_judged_alike():
    results = await asyncio.gather(*(judged("SELECT max(a) FROM t") for _ in range(20)))
    assert results == [(1.0, "none")] * 20
