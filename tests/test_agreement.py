"""The agreement benchmark: what its plain harness says of programs, which rows it makes, what it counts."""

import io
import json

import pytest
from rich.console import Console

from benchmarks import agreement
from benchmarks.agreement import share, table
from benchmarks.agreements.plain import PASSED, TIMEOUT, judge_printed, judge_tests, printed
from benchmarks.agreements.rows import (
    AgreementRow,
    as_printed,
    entry_points,
    humaneval,
    idioms,
    mbpp,
    mutated,
    own,
    with_tests,
)
from benchmarks.agreements.verdicts import VerdictDifference, cause_of, differences
from rewards.sandbox import CaseResult

ADD = "def f(a):\n    return a + 1\n"


@pytest.mark.parametrize(
    ("end", "verdict"),
    [
        ("", PASSED),
        ("raise SystemExit", PASSED),
        ("exit()", PASSED),
        ("import unittest\nunittest.main()", PASSED),
        ("if __name__ == '__main__':\n    1 / 0", PASSED),
        ("import sys\nsys.stdout.close()", PASSED),
        ("print('x' * 100000)", PASSED),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import os\nos._exit(0)", "the process ended"),
        ("while True: pass", TIMEOUT),
        ("def", "SyntaxError: invalid syntax (main.py, line 3)"),
    ],
)
@pytest.mark.slow
async def test_how_a_program_ends_decides_whether_its_functions_are_tested(end, verdict):
    assert await judge_tests(ADD + end, "", ["assert f(1) == 2", "assert f(2) == 3"], 0.5) == [verdict] * 2


@pytest.mark.slow
async def test_every_test_has_its_own_verdict_and_names():
    tests = ["assert f(1) == 2", "assert f(1) == 3", "f = None\nassert f is None", "assert f(n) == 6", "f(None)", "g()"]
    verdicts = await judge_tests(ADD, "n = 5", tests, 2.0)
    kinds = [verdict.partition(":")[0] for verdict in verdicts if verdict is not None]
    assert kinds == [PASSED, "AssertionError", PASSED, PASSED, "TypeError", "NameError"]


@pytest.mark.slow
async def test_a_test_that_ends_the_process_fails_alone():
    program = "import os\ndef f(a):\n    return a if a else os._exit(0)"
    tests = ["assert f(1)", "f(0)", "assert f(2)", "f(0)"]
    assert await judge_tests(program, "", tests, 2.0) == [PASSED, "the process ended", PASSED, "the process ended"]


@pytest.mark.slow
async def test_no_test_runs_after_one_that_timed_out():
    program = "def f(a):\n    while a: pass\n    return 1"
    assert await judge_tests(program, "", ["assert f(0)", "f(1)", "f(0)"], 0.5) == [PASSED, TIMEOUT, None]
    program = "given = input()\nwhile given == '1': pass"
    assert await judge_printed(program, [("0", ""), ("1", ""), ("0", "")], 0.5) == [PASSED, TIMEOUT, None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("print(int(input()) + 1)", PASSED),
        ("if __name__ == '__main__':\n    print('3  \\n\\n')", PASSED),
        ("print(3)\nexit()", PASSED),
        ("print(' 3')", "other output"),
        ("print(3.0)", "other output"),
        ("print(3)\n1 / 0", "exit code 1"),
    ],
)
async def test_lines_are_compared_without_blanks_at_their_ends(program, verdict):
    assert await judge_printed(program, [("2\n", "3\n")], 2.0) == [verdict]


async def test_memory_of_a_plain_program_is_limited():
    assert await printed("try:\n    bytearray(1 << 31)\nexcept MemoryError:\n    print(1)", "", 2.0) == (None, "1\n")


def test_entry_points_are_what_the_program_binds_and_the_tests_use():
    program = "import math\nlimit = 3\ndef sum(a):\n    return a\nclass bisect: pass\ndef unused(): pass\nf = sum\n"
    tests = ["assert sum(1) == f(1) == limit", "assert bisect() and math.pi and len([1])"]
    assert entry_points(program, tests) == ("bisect", "f", "limit", "sum")


def test_public_rows_carry_setup_tests_and_entry_points(tmp_path):
    full = {"task_id": 3, "code": "def f(a):\r\n  return a", "test_setup_code": "n = 2"}
    full |= {"test_list": ["assert f(n) == 2"], "challenge_test_list": ["assert f(3) == 3"]}
    sanitized = {"task_id": 4, "code": ADD, "test_imports": ["import math"], "test_list": ["assert f(1) == 2"]}
    check = "def check(candidate):\n    assert candidate(1) == 2\n"
    human = {"task_id": "HumanEval/0", "prompt": "def f(a):\n", "canonical_solution": "    return a + 1\n"}
    human |= {"test": check, "entry_point": "f"}
    paths = [tmp_path / name for name in ("full.jsonl", "sanitized.json", "humaneval.jsonl")]
    for path, value in zip(paths, (full, [sanitized], human), strict=True):
        path.write_text(json.dumps(value))
    tests = ("assert f(n) == 2", "assert f(3) == 3")
    assert list(mbpp(paths[0])) == [AgreementRow("mbpp", "3", "def f(a):\n  return a", tests, "n = 2", (), ("f",))]
    assert list(mbpp(paths[1])) == [
        AgreementRow("mbpp sanitized", "4", ADD, ("assert f(1) == 2",), "import math", (), ("f",))
    ]
    assert list(humaneval(paths[2])) == [
        AgreementRow("humaneval", "HumanEval/0", ADD, (f"{check}\ncheck(f)",), "", (), ("f",))
    ]


@pytest.fixture(scope="module")
def ours() -> list[AgreementRow]:
    return list(own(2, 0))


@pytest.mark.slow
def test_own_sources_are_the_same_for_the_same_seed(ours):
    kinds = ["micro write", "micro repair", "micro parts", "refactor", "refactor, original", "micro sql", "sql"]
    assert sorted(row.source for row in ours) == sorted(kinds * 2)
    assert list(own(2, 0)) == ours != list(own(2, 1))


@pytest.mark.slow
async def test_own_reference_solutions_pass_plainly(ours):
    for row in ours[::2]:
        verdicts = await (
            judge_printed(row.program, row.printed, 5.0)
            if row.printed
            else judge_tests(row.program, row.setup, row.tests, 5.0)
        )
        assert verdicts == [PASSED] * len(row.texts)


@pytest.mark.slow
async def test_printed_rows_expect_what_the_reference_prints():
    rows = [
        with_tests("set", "1", ADD, ["assert f(1) == 2.0", "assert f([1]) == 3", "assert f(7) == 8", "assert f(1)"])
    ]
    (made,) = await as_printed(rows, 5, 2.0, 1)
    assert made.source == "set, printed"
    assert made.printed == (("(1,)\n", "2\n"), ("(7,)\n", "8\n"))


def test_mutants_come_from_all_rows_in_turn_and_differ():
    programs = [f"def f(a):\n    row = '{n}'\n    return a * 2 + 1" for n in range(5)]
    rows = [with_tests("set", str(n), program, ["assert f(1) == 3"]) for n, program in enumerate(programs)]
    made = mutated(rows, 12, seed=1)
    assert made == mutated(rows, 12, seed=1) != mutated(rows, 12, seed=2)
    assert sorted(row.id for row in made[:5]) == sorted(row.id for row in made[5:10]) == list("01234")
    assert len({row.program for row in [*rows, *made]}) == 17
    assert all(row.mutant and row.tests == rows[int(row.id)].tests for row in made)
    assert len(mutated(rows[:1], 1000, seed=0)) < 20


@pytest.mark.slow
def test_idioms_compile_and_have_a_test_each():
    rows = list(idioms())
    assert len(rows) > 300
    for row in rows:
        assert len(row.texts) == 1
        compile(row.program, row.id, "exec")
        compile("\n".join(row.tests), row.id, "exec")


@pytest.mark.slow
async def test_plain_python_passes_the_idioms_and_fails_the_refusals():
    for row in list(idioms())[::4]:
        if not row.printed:
            (verdict,) = await judge_tests(row.program, row.setup, row.tests, 5.0)
            assert (verdict == PASSED) == (row.source != "idioms, refusals"), (row.texts, verdict)


def _found(plain, *outcomes):
    return plain, [CaseResult(outcome, detail) for outcome, detail in outcomes]


def test_only_tests_that_ran_and_differ_are_differences():
    row = with_tests("set", "1", ADD, ["a", "b", "c", "d", "e"])
    skipped = ("timeout", "not run: 1 cases had timed out")
    cases = [("passed", None), ("runtime_error", "E"), ("timeout", None), ("passed", None), ("timeout", None)]
    assert differences([row], [_found([PASSED] * 5, *cases[:1], *[skipped] * 4)]) == []
    found = _found([PASSED, PASSED, "AssertionError: x", TIMEOUT, None], *cases)
    made = differences([row], [found])
    assert [(one.index, one.plain, one.outcome) for one in made] == [
        (1, PASSED, "runtime_error"),
        (3, TIMEOUT, "passed"),
    ]


@pytest.mark.parametrize(
    ("plain", "outcome", "detail", "cause"),
    [
        (PASSED, "timeout", "more than 3 s", "one side timed out twice"),
        (PASSED, "wrong_answer", "the test compares an object of the program's class A", "by design, undecidable"),
        (PASSED, "runtime_error", "NameError: name 'exit' is not defined", "to be explained: plain passed"),
        ("AssertionError: 3", "passed", "", "to be explained: plain AssertionError, sandbox passed"),
        ("other output", "passed", "", "to be explained: plain other output, sandbox passed"),
    ],
)
def test_differences_are_grouped_by_cause(plain, outcome, detail, cause):
    row = with_tests("set", "1", ADD, ["assert f(1) == 2"])
    assert cause_of(VerdictDifference(row, 0, plain, outcome, detail)).startswith(cause)


def test_printed_numbers_that_are_equal_by_value_differ_by_design():
    row = AgreementRow("set, printed", "1", "print(240.0)", printed=(("", "240\n"),))
    assert cause_of(VerdictDifference(row, 0, "other output", "passed", "")).startswith("by design, printed tokens")


def test_the_table_counts_verdicts_by_source():
    rows = [with_tests("a", "1", ADD, ["x", "y"]), with_tests("b", "2", ADD, ["x", "y", "z"])]
    wrong = ("wrong_answer", None)
    found = [
        _found([PASSED, PASSED], ("passed", None), wrong),
        _found([PASSED, TIMEOUT, None], ("passed", None), wrong, wrong),
    ]
    console = Console(record=True, width=160, file=io.StringIO())
    console.print(table(rows, found, differences(rows, found)))
    lines = [line.split("│")[1:6] for line in console.export_text().splitlines() if line.startswith("│")]
    figures = [[cell.strip() for cell in cells] for cells in lines]
    assert figures == [["a", "1", "2", "1", "1"], ["b", "1", "2", "2", "0"], ["all", "2", "4", "3", "1"]]


def test_share_is_given_with_its_wilson_interval():
    assert share(998, 1000) == "99.80% (99.27% .. 99.95%)"


@pytest.mark.slow
def test_the_benchmark_finds_no_difference_in_our_own_sets(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.argv", ["agreement", "--own", "2", "--mutants", "10", "--out", str(tmp_path)])
    assert agreement.main() == 0
    assert json.loads((tmp_path / "differences.json").read_text()) == []
