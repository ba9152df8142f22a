"""`data_prep.audit_tests`: what it counts, what it writes, what stops it, and how many planted weak suites it finds."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.planted_tests import all_audited, recall
from data_prep import audit_tests
from data_prep.json_lines import read_lines
from data_prep.strength import measuring
from data_prep.strength.measuring import Measurement, measured
from data_prep.strength.strength import Strength
from data_prep.tasks import Task, read_tasks
from rewards.sandbox import CheckResult, InfrastructureError, Sandbox
from tests.data_prep.task_examples import fields, task, write_lines

ABOVE = """\
def above(values, least):
    found = []
    for value in values:
        if value >= least:
            found.append(value)
    return found
"""
STRONG = [
    "assert above([1, 5, 9], 5) == [5, 9]", "assert above([2, 2, 7], 3) == [7]", "assert above([4, 1], 9) == []",
]  # fmt: skip
WEAK = ["assert above([4, 1], 9) == []"]
SLOW = Measurement(timeout=20.0, inputs=24)  # a busy machine is no wrong program
# `>=` in place of `>` gives the same.
CLIP = "def clip(x):\n    if x > 0:\n        return x\n    return 0"


def above(number: int, tests: list[str], **changes: Any) -> dict[str, Any]:
    return fields(number, ground_truth={"tests": tests, "visible": 1}, solution=ABOVE, **changes)


def strength_of(one: Task, how: Measurement | None = None, sandbox: Any = None) -> Strength:
    async def run() -> Strength:
        if sandbox is not None:
            return await measured(one, sandbox, how or Measurement())
        async with Sandbox() as real:
            return await measured(one, real, how or Measurement())

    return asyncio.run(run())


def audited(tmp_path: Path, *arguments: str) -> int:
    return audit_tests.main([*arguments, "--out", str(tmp_path / "out")])


def kept(tmp_path: Path) -> dict[str, Strength]:
    lines = read_lines(tmp_path / "out/strength.jsonl")
    found = [Strength.of_record(line.value["value"]) for line in lines if line.value is not None]
    return {one.id: one for one in found}


@pytest.mark.slow
def test_the_audit_lists_weak_problems_with_programs_that_differ(tmp_path, capsys):
    path = write_lines(tmp_path / "a.jsonl", above(0, STRONG), above(1, WEAK), fields(2, solution=None))
    assert audited(tmp_path, str(path)) == 0
    printed = capsys.readouterr()
    assert "2 problems, line 0.8: 1 strong, 1 weak, 0 unknown;" in printed.out
    assert "1 tasks not audited" in printed.out
    assert "auditing tests" in printed.err
    found = kept(tmp_path)
    assert found["own/0"].share == 1.0
    weak = found["own/1"]
    assert weak.survived > weak.killed > 0
    assert weak.inputs >= 32
    for example in weak.examples:
        assert example.test in weak.added or example.test.startswith("assert above(")
        assert example.detail.startswith("returned ") or "Error" in example.detail
    assert "### own/1" in (tmp_path / "out/audit_tests.md").read_text()


@pytest.mark.slow
def test_an_equivalent_program_counts_for_nothing():
    found = strength_of(
        task(
            ground_truth={"tests": ["assert clip(3) == 3", "assert clip(1) == 1", "assert clip(-2) == 0"]},
            solution=CLIP,
        )
    )
    assert found.equivalent >= 1
    assert found.survived + found.undecided + found.unjudged == 0
    assert found.share == 1.0
    assert found.mutants == found.killed + found.equivalent


@pytest.mark.slow
def test_more_tests_reject_the_survivors_and_stay_hidden(tmp_path, capsys):
    path = write_lines(tmp_path / "a.jsonl", above(0, STRONG), above(1, WEAK))
    assert audited(tmp_path, str(path), "--more-tests", "--leave-out") == 0
    before, after = read_tasks(path), read_tasks(tmp_path / f"out/more_tests/{tmp_path.name}/a.jsonl")
    assert after[0] == before[0]
    truth = after[1].ground_truth
    assert truth["tests"][:1] == WEAK
    assert truth["visible"] == 1
    assert 1 <= len(truth["tests"][1:]) <= 5
    assert [one.id for one in read_tasks(tmp_path / f"out/left_out/{tmp_path.name}/a.jsonl")] == ["own/0"]
    assert (tmp_path / f"out/left_out/{tmp_path.name}/a.parquet").exists()
    assert "more tests for 1 problems" in capsys.readouterr().out
    other_draw = strength_of(after[1], Measurement(seed=1))
    assert other_draw.share is not None
    assert other_draw.share >= 0.9


@pytest.mark.slow
def test_programs_that_print_are_measured_too():
    solution = (
        "n, k = map(int, input().split())\na = list(map(int, input().split()))\nprint(sum(x for x in a if x > k))"
    )
    cases = [("2 4\n1 9\n", "9"), ("2 6\n6 3\n", "0"), ("3 4\n9 1 5\n", "14")]
    found = [
        strength_of(
            task(
                verifier="stdio",
                ground_truth={"cases": [{"stdin": given, "expected": answer} for given, answer in shown]},
                solution=solution,
            ),
            SLOW,
        )
        for shown in (cases[:1], cases)
    ]
    weak, strong = found
    assert weak.survived >= 1
    assert set(weak.added[0]) == {"stdin", "expected"}
    assert strong.share is not None
    assert weak.share is not None
    assert strong.share > weak.share


# The answer is 1 for each of SORTED.
SEARCH = """
import bisect
n, k = map(int, input().split())
print(bisect.bisect_left(list(map(int, input().split())), k))
"""
COUNT = "n, k = map(int, input().split())\nprint(sum(int(x) < k for x in input().split()))"
SORTED = [
    {"stdin": f"{len(a.split())} {k}\n{a}\n", "expected": f"{sum(int(x) < k for x in a.split())}\n"}
    for k, a in ((5, "1 6 7"), (3, "2 3 4 6"), (5, "0 5 5 8 9"))
]


@pytest.mark.slow
def test_added_tests_of_printed_programs_are_of_sorted_lists_only():
    found = strength_of(task(verifier="stdio", ground_truth={"cases": SORTED}, solution=SEARCH), SLOW)
    assert found.added
    lists = [list(map(int, test["stdin"].split("\n")[1].split())) for test in found.added]
    assert lists == list(map(sorted, lists))
    assert found.inputs >= 8


@pytest.mark.slow
def test_a_test_that_another_solution_refutes_is_dropped_and_reported(tmp_path, capsys):
    # It passes the problem's tests, of which none has the limit 4. The third program fails them: it is no evidence.
    other = COUNT.replace("print(", "print(0 if k == 4 else ")
    one = fields(0, verifier="stdio", ground_truth={"cases": SORTED}, solution=SEARCH)
    path = write_lines(tmp_path / "a.jsonl", one)
    (tmp_path / "more").mkdir()
    write_lines(tmp_path / "more/solutions.jsonl", {"id": "own/0", "solutions": [COUNT, other, "print(1)"]})
    assert audited(tmp_path, str(path), "--more-tests", "--timeout", "20") == 0
    found = kept(tmp_path)["own/0"]
    assert found.dropped[measuring.DISPUTED] > 0
    assert [test for test in found.added if test["stdin"].split()[1] == "4"] == []
    report = (tmp_path / "out/audit_tests.md").read_text()
    assert f"|dropped: {measuring.DISPUTED}|{found.dropped[measuring.DISPUTED]}|" in report


@pytest.mark.slow
def test_without_new_inputs_accepted_programs_stay_undecided():
    test = "values = [4, 1]\nassert above(values, 9) == []"
    found = strength_of(task(ground_truth={"tests": [test]}, solution=ABOVE))
    assert (found.survived, found.equivalent, found.inputs) == (0, 0, 0)
    assert found.undecided > 3
    assert found.standing(0.8) == "unknown"


@pytest.mark.slow
def test_an_answer_of_another_type_makes_no_test():
    solution = "def half(x):\n    if x % 2 == 0:\n        return x // 2"
    found = strength_of(
        task(ground_truth={"tests": ["assert half(8) == 4", "assert half(40) == 20"]}, solution=solution)
    )
    assert 8 <= found.inputs < 32
    assert found.dropped[measuring.OTHER_KIND] + found.dropped.get(measuring.FAILS, 0) == 64 - found.inputs
    assert not [test for test in found.added if "None" in test]


@pytest.mark.slow
def test_a_solution_that_fails_is_reported(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", above(0, ["assert above([1], 0) == []"]))
    assert audited(tmp_path, str(path)) == 0
    assert "its solution fails a test: wrong_answer" in (tmp_path / "out/audit_tests.md").read_text()


class Failing:
    """A sandbox that cannot run programs with a certain text."""

    def __init__(self, real: Sandbox, text: str) -> None:
        self.real, self.text = real, text

    async def check_many(self, programs: Any, cases: Any, **options: Any) -> list[CheckResult | InfrastructureError]:
        results = await self.real.check_many(programs, cases, **options)
        lost = InfrastructureError("the server is gone")
        return [lost if self.text in one.code else result for one, result in zip(programs, results, strict=True)]

    async def run(self, *arguments: Any, **options: Any) -> Any:
        return await self.real.run(*arguments, **options)


@pytest.mark.slow
def test_programs_that_could_not_be_run_are_not_killed_and_not_kept(tmp_path, capsys, monkeypatch):
    path = write_lines(tmp_path / "a.jsonl", above(0, STRONG), fields(1))
    monkeypatch.setattr(audit_tests, "sandbox_at", lambda *_: Failing(Sandbox(), "value > least"))
    assert audited(tmp_path, str(path)) == 1
    assert "the sandbox failed for 0 problems and parts of 1; run again to resume" in capsys.readouterr().err
    assert set(kept(tmp_path)) == {"own/1"}
    monkeypatch.setattr(audit_tests, "sandbox_at", lambda *_: Failing(Sandbox(), "def above"))
    assert audited(tmp_path, str(path)) == 1
    assert "the sandbox failed for 1 problems and parts of 0" in capsys.readouterr().err
    monkeypatch.undo()
    assert audited(tmp_path, str(path)) == 0
    found = kept(tmp_path)["own/0"]
    assert (found.unjudged, found.share) == (0, 1.0)


@pytest.mark.slow
def test_an_interrupted_audit_resumes(tmp_path, monkeypatch):
    path = write_lines(tmp_path / "a.jsonl", above(0, STRONG), above(1, WEAK), fields(2))
    done: list[str] = []

    async def counted(one: Task, *rest: Any) -> Strength:
        if len(done) == 2 and one.id not in done:
            raise KeyboardInterrupt
        done.append(one.id)
        return await measuring.measured(one, *rest)

    monkeypatch.setattr(audit_tests, "measured", counted)
    monkeypatch.setattr(audit_tests, "_AT_A_TIME", 1)
    with pytest.raises(KeyboardInterrupt):
        audited(tmp_path, str(path))
    first = set(kept(tmp_path))
    assert first == {"own/0", "own/1"}
    done.append("own/2")
    assert audited(tmp_path, str(path)) == 0
    assert done == ["own/0", "own/1", "own/2", "own/2"]
    interrupted = kept(tmp_path)
    assert audit_tests.main([str(path), "--out", str(tmp_path / "whole")]) == 0
    (tmp_path / "out").rename(tmp_path / "cut")
    (tmp_path / "whole").rename(tmp_path / "out")
    assert kept(tmp_path) == interrupted


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (json.dumps(fields(1, role="exam")), ":2: field 'role'"),
        (json.dumps(fields(1, solution="def f(:")), ":2: field 'solution': no Python program"),
        (json.dumps(fields(0)), ":2: the id 'own/0' is also in line 1"),
        ("{", ":2: not JSON"),
    ],
)
def test_a_bad_row_stops_the_audit_before_it_starts(tmp_path, capsys, line, said):
    path = write_lines(tmp_path / "a.jsonl", fields(0), line)
    assert audited(tmp_path, str(path)) == 1
    assert f"{path}{said}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_files_that_cannot_be_audited_are_refused(tmp_path, capsys):
    path = write_lines(tmp_path / "a.jsonl", fields(0, solution=None))
    assert audited(tmp_path, str(path)) == 1
    assert f"{path}: no task has a solution and a verifier of code, refactor, stdio" in capsys.readouterr().err
    path = write_lines(tmp_path / "b.jsonl", fields(0))
    assert audited(tmp_path, str(path), str(path)) == 1
    assert f"{path}:1: field 'id': 'own/0' is also in {path}:1" in capsys.readouterr().err
    for folder in ("x/d", "y/d"):
        (tmp_path / folder).mkdir(parents=True)
    files = [write_lines(tmp_path / f"{name}/d/c.jsonl", fields(n)) for n, name in enumerate("xy")]
    assert audited(tmp_path, *map(str, files), "--leave-out") == 1
    assert "two files have the same folder and name" in capsys.readouterr().err
    assert audited(tmp_path, str(path), "--experiment", "none") == 1
    assert "--experiment: no experiment 'none'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_planted_weak_suites_are_found_without_false_alarms():
    for name in ("micro", "english"):
        found = recall(asyncio.run(all_audited(name, 12, 0, 0.8)), 0.8)
        assert found.weak >= 2  # of English two at twelve problems, 16 at sixty
        assert found.found >= 0.75 * found.weak
        assert (found.strong, found.false_alarms) == (12, 0)
