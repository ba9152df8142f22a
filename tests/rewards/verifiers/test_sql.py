"""Verifier `sql`: results decide, on hidden tables; nothing but reading is allowed."""

import asyncio
import math
import time

import pytest

import rewards
from rewards import compute_score
from rewards.verifiers import sql_driver
from rewards.verifiers.sql import Database, SqlTruth, same_rows
from tests.rewards.results import number_of

pytestmark = pytest.mark.slow  # with the sandbox

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


def on_duckdb(query, row_limit=3, seconds=9.0):
    """The driver's result for a query, in this process: the rows or the kind of error."""
    pytest.importorskip("duckdb")
    job = {"engine": "duckdb", "query": query, "row_limit": row_limit, "seconds": seconds, "setups": [SETUP + ROWS]}
    answer = sql_driver.answer_of(job)
    return answer["results"][0] if "results" in answer else answer["error"]


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("SELECT max(a) FROM t", [[3]]),
        ("FROM t SELECT b ORDER BY a", [[2.5], [None], [0.5]]),
        ("SELECT 1.50::DECIMAL(5, 2), 2::DECIMAL(5, 2), true, DATE '2020-01-31'", [[1.5, 2, 1, "2020-01-31"]]),
        ("SELECT 'a\\x01'::BLOB", [["6101"]]),
        ("SELECT max(z) FROM t", "syntax"),
        ("SELEC 1", "syntax"),
        ("SELECT 1; SELECT 2", "syntax"),
        ("-- nothing", "syntax"),
        ("SELECT * FROM range(9)", "runtime"),
        ("ATTACH '/tmp/other.db'", "runtime"),
        ("PRAGMA version", "runtime"),
        ("INSERT INTO t VALUES (9, 9, 'z') RETURNING 7", "runtime"),
        ("WITH x AS (DELETE FROM t RETURNING a) SELECT max(a) FROM x", "runtime"),
        ("SELECT content FROM read_text('/etc/hostname')", "runtime"),
        ("COPY t TO '/tmp/copy.csv'", "runtime"),
        ("INSTALL httpfs", "runtime"),
        ("SET threads = 8", "runtime"),
    ],
)
def test_the_same_rules_hold_on_duckdb(query, answer):
    assert on_duckdb(query) == answer


def test_a_duckdb_query_without_end_is_interrupted():
    assert on_duckdb("SELECT count(*) FROM range(100000000) a, range(100000000) b", seconds=0.1) == "timeout"


async def test_duckdb_queries_run_in_the_sandbox():
    pytest.importorskip("duckdb")
    row = SqlTruth.model_validate_json(LARGEST).model_copy(update={"engine": "duckdb"}).model_dump_json()
    assert await judged("SELECT max(a) FROM t", row, timeout=60.0) == (1.0, "none")


async def test_a_row_whose_tables_cannot_be_made_masks_its_answers(monkeypatch):
    monkeypatch.setattr(rewards, "_logged_failures", set())
    broken = SqlTruth(databases=[Database(setup="CREATE TABEL t(a)", expected=[[1]])]).model_dump_json()
    result = await compute_score("sql", "SELECT 1", broken)
    assert result["error"] == "infrastructure"
    assert math.isnan(number_of(result, "score"))


async def test_many_queries_at_once_are_judged_alike():
    results = await asyncio.gather(*(judged("SELECT max(a) FROM t") for _ in range(20)))
    assert results == [(1.0, "none")] * 20


@pytest.mark.parametrize(
    ("rows", "expected", "same"),
    [
        ([[5000000001]], [[5000000000]], False),
        ([[9007199254740993]], [[9007199254740992]], False),
        ([[5.0]], [[5]], True),
        ([[5.0000000001]], [[5]], False),
        ([[5.0000000001]], [[5.0]], True),
        ([[5]], [[5.0000000001]], True),
        ([[5000000001], [5000000000]], [[5000000000], [5000000001]], True),
        ([[0.1 + 0.2, 1], [0.3, 2]], [[0.3, 1], [0.3, 2]], True),
    ],
)
def test_a_whole_number_is_exact(rows: list[list[object]], expected: list[list[object]], same: bool) -> None:
    assert same_rows(rows, expected, ordered=False) is same  # type: ignore[arg-type]
