"""Procedural sets: same seed, same tasks; disjoint splits; problems that have the stated answer."""

import ast
import operator
import random
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.schema import DataFileError
from data_prep.sources import arithmetic, bugs, countdown, gsm8k, procedural, sql
from data_prep.sources.arithmetic import random_story
from data_prep.sources.bugs import mutants
from data_prep.sources.countdown import random_problem, solve
from data_prep.sources.sql import KINDS, Ambiguous, hidden_databases, random_question, random_schema
from data_prep.splits import split_by_hash
from data_prep.tasks import read_tasks, write_tasks
from tests.data_prep.task_examples import task

pytestmark = pytest.mark.slow

PROGRAM = "def clamp(x, low, high):\n    if x < low:\n        return low\n    return min(x, high)"
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value_of(text):
    """Value and numbers of an expression."""

    def walk(node):
        if isinstance(node, ast.Constant):
            assert isinstance(node.value, int)
            return Fraction(node.value), [node.value]
        (left, used), (right, more) = walk(node.left), walk(node.right)
        return OPERATIONS[type(node.op)](left, right), used + more

    value, numbers = walk(ast.parse(text, mode="eval").body)
    return value, sorted(numbers)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(3, 6))
def test_a_countdown_problem_has_the_solution_that_made_it(seed, count):
    numbers, target, solution = random_problem(random.Random(seed), count)
    assert value_of(solution) == (target, sorted(numbers))
    assert len(numbers) == count
    assert 0 < target < 1000


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(3, 4))
def test_the_solver_solves_what_can_be_solved(seed, count):
    numbers, target, _ = random_problem(random.Random(seed), count)
    assert value_of(solve(numbers, target)) == (target, sorted(numbers))


def test_the_solver_uses_exact_fractions_and_says_when_there_is_none():
    assert value_of(solve([8, 3, 8, 3], 24)) == (24, [3, 3, 8, 8])
    assert solve([1, 1, 1], 100) is None


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_every_line_of_an_arithmetic_solution_holds_and_leads_to_the_answer(seed, steps):
    story = random_story(random.Random(seed), steps)
    *lines, last = story.solution.splitlines()
    assert last == f"#### {story.answer}"
    assert len(lines) == steps
    number = int(story.text.split()[2])
    for line in lines:
        calculation, _, result = line.rpartition(". ")[2].partition(" = ")
        assert calculation.startswith(f"{number} ")
        assert value_of(calculation)[0] == int(result) > 0
        number = int(result)
    assert number == story.answer


def test_arithmetic_tasks_are_asked_as_gsm8k_is():
    fields = arithmetic.draw(random.Random(0), (3,))
    assert fields["prompt"].endswith(gsm8k.INSTRUCTION)
    assert fields["ground_truth"] == {"answer": fields["solution"].rpartition("#### ")[2]}


def test_splits_are_disjoint_and_the_same_for_the_same_seed():
    first, again, other = (list(procedural.drafts("c", countdown.draw, limit=50, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert {split: sum(item["split"] == split for item in first) for split in ("train", "dev", "test")} == {
        **{"train": 50, "dev": 5, "test": 5}
    }
    prompts = {item["prompt"]: item["split"] for item in first}
    assert len(prompts) == 60
    assert all(prompts.get(item["prompt"], item["split"]) == item["split"] for item in other)


def test_more_problems_than_there_are_is_refused():
    def few(rng):
        return {"prompt": f"problem {rng.randrange(5)}"}

    with pytest.raises(DataFileError, match=r"s has only about \d problems; lower --limit \(50\)"):
        list(procedural.drafts("s", few, limit=50, seed=0))


def test_shares_are_kept():
    shares = {"a": 70, "b": 30}
    found = [split_by_hash(str(number), shares) for number in range(2000)]
    assert found.count("a") / 2000 == pytest.approx(0.7, abs=0.03)


def test_a_program_has_every_single_change_once():
    assert {(mutant.kind, mutant.source) for mutant in mutants("def f(a):\n    return a < 2 and min(a, 1)")} == {
        ("comparison", "def f(a):\n    return a <= 2 and min(a, 1)"),
        ("connective", "def f(a):\n    return a < 2 or min(a, 1)"),
        ("constant", "def f(a):\n    return a < 3 and min(a, 1)"),
        ("constant", "def f(a):\n    return a < 1 and min(a, 1)"),
        ("builtin", "def f(a):\n    return a < 2 and max(a, 1)"),
        ("constant", "def f(a):\n    return a < 2 and min(a, 2)"),
        ("constant", "def f(a):\n    return a < 2 and min(a, 0)"),
    }
    assert mutants("x = True") == []


def test_bugs_fail_the_test_they_show_and_keep_their_role(tmp_path, capsys):
    tests = ["assert clamp(1, 2, 9) == 2", "assert clamp(2, 2, 9) == 2", "assert clamp(10, 2, 9) == 9"]
    tasks = [
        task(0, prompt="Clamp.", solution=PROGRAM, ground_truth={"tests": tests}),
        task(1, prompt="Held.", solution=PROGRAM, ground_truth={"tests": tests}, role="test", split="held"),
        task(2, solution=None),
        task(3, prompt="Same.", solution="def f():\n    return 'a'", ground_truth={"tests": ["assert f() == 'a'"]}),
    ]
    write_tasks(tmp_path / "t.jsonl", tasks)
    out = tmp_path / "out"
    assert bugs.main(["--tasks", str(tmp_path / "t.jsonl"), "--out", str(out), "--per-program", "3"]) == 0
    made = read_tasks(out / "train.jsonl")
    assert {item.notes["bug"] for item in made} == {"condition", "builtin"}
    assert [item.id for item in made] == ["bugs/own/0/0", "bugs/own/0/1"]
    for item in made:
        assert item.solution == PROGRAM
        shown = {"condition": "assert clamp(1, 2, 9) == 2", "builtin": "assert clamp(2, 2, 9) == 2"}
        fails = shown[str(item.notes["bug"])]
        assert item.ground_truth["tests"][0] == fails
        assert (item.ground_truth["visible"], sorted(item.ground_truth["tests"])) == (1, sorted(tests))
        assert f"It fails this test:\n```python\n{fails}\n```" in item.prompt
    assert {item.role for item in read_tasks(out / "test.jsonl")} == {"test"}
    assert "1 x no single change makes a test fail" in capsys.readouterr().out


def test_bugs_keep_the_entry_points_of_their_program(tmp_path):
    truth = {"tests": ["assert sum(1, 2) == 3", "assert sum(2, 2) == 4"], "entry_points": ["sum"]}
    one = task(0, prompt="Add.", solution="def sum(a, b):\n    return a + b", ground_truth=truth)
    write_tasks(tmp_path / "t.jsonl", [one])
    assert bugs.main(["--tasks", str(tmp_path / "t.jsonl"), "--out", str(tmp_path / "out")]) == 0
    made = read_tasks(tmp_path / "out/train.jsonl")
    assert {tuple(item.ground_truth["entry_points"]) for item in made} == {("sum",)}
    assert "a - b" in made[0].prompt


@pytest.mark.parametrize("level", KINDS)
def test_hidden_databases_tell_every_misreading(level):
    rng = random.Random(level)
    for _ in range(6):
        schema = random_schema(rng)
        question = random_question(rng, schema, level)
        databases = hidden_databases(question.query, question.wrong, partial(schema.setup, rng))
        assert len(databases) >= 2
        assert any(database.expected for database in databases)
        assert question.query not in question.wrong


def test_queries_that_mean_the_same_are_ambiguous():
    schema = random_schema(random.Random(0))
    query = f"SELECT name FROM {schema.child}"
    with pytest.raises(Ambiguous, match="could not be distinguished from"):
        hidden_databases(query, [query.lower()], lambda: schema.setup(random.Random(0)))


def test_sql_tasks_are_proved_on_their_databases(tmp_path, capsys):
    assert sql.main(["--out", str(tmp_path), "--limit", "12", "--seed", "5"]) == 0
    train = read_tasks(tmp_path / "train.jsonl")
    assert len(train) == 12
    assert {item.notes["level"] for item in train} == {1, 2, 3}
    assert "CREATE TABLE" in train[0].prompt
    assert "INSERT" not in train[0].prompt
    assert "0 rows have no solution to prove; 0 problems refused" in capsys.readouterr().out


def test_sql_tasks_for_duckdb_are_proved_there(tmp_path, capsys):
    pytest.importorskip("duckdb")
    assert sql.main(["--out", str(tmp_path), "--limit", "1", "--engine", "duckdb"]) == 0
    train = read_tasks(tmp_path / "train.jsonl")
    assert [item.ground_truth["engine"] for item in train] == ["duckdb"]
    assert "These DuckDB tables" in train[0].prompt
    assert "0 problems refused" in capsys.readouterr().out
