"""Impossible tasks: what is changed, what is left out, and that a known solution fails them in the sandbox."""

import asyncio
from pathlib import Path

import pytest

from data_prep import impossible
from data_prep.schema import read_rows
from data_prep.strength.contradiction import contradict, other_expectation
from data_prep.tasks import read_tasks
from rewards import compute_score
from rewards.verifiers.code import CodeTruth
from tests.data_prep.task_examples import fields, write_lines


@pytest.mark.parametrize(
    ("test", "changed"),
    [
        ("assert f(1)==(3)", "f(1)==(4)"),
        ("import math\nassert f(1) == (3, -20)", "f(1) == (3, -21)"),
        ("assert f('é') == {'a': 'b'}", "f('é') == {'a': 'bx'}"),
        ("assert f(1) is True, 'why 1'", "f(1) is False"),
        ("assert f(1) == [None]", "f(1) == [0]"),
        ("assert f(1) == {1, 2, 1}", None),  # the same set with 2 for the last 1
        ("assert f(1) == []", None),
        ("assert f(1) == g(2)", None),
        ("assert not f(1)", None),
        ("assert f(1) == 1e999", None),
        ("f(1)", None),
    ],
)
def test_the_last_constant_of_an_expected_literal_changes(test: str, changed: str | None):
    found = other_expectation(test)
    assert (found and found[1]) == changed
    assert found is None or found[0] in test


def test_prompt_and_test_change_alike_and_only_where_the_prompt_shows_the_comparison_once():
    tests = ["assert f(0)", "assert f(1) == 2", "assert f(2) == 3"]
    truth = CodeTruth(tests=tests, visible=2)
    found = contradict("Add one: assert f(1) == 2.", truth)
    assert found is not None
    assert found[0] == "Add one: assert f(1) == 3."
    assert found[1] == CodeTruth(tests=["assert f(0)", "assert f(1) == 3", tests[2]], visible=2, impossible=True)
    assert truth.tests == tests
    assert contradict("f(1) == 2 f(1) == 2", truth) is None
    assert contradict("f(2) == 3", truth) is None  # a hidden test
    assert "impossible" not in truth.model_dump()


@pytest.mark.slow
def test_written_tasks_are_those_whose_solution_fails_the_changed_test_alone(tmp_path: Path):
    def shown(number: int, expected: str, **changes):
        test = f"assert add{number}(1, 2) == {expected}"
        prompt, truth = f"Write add{number}. {test}", {"tests": [test, f"assert add{number}(5, 5)"], "visible": 1}
        return fields(number, prompt=prompt, ground_truth=truth, **changes)

    hidden = {"tests": ["assert add3(1, 2) == 3"]}
    file = write_lines(
        tmp_path / "own.jsonl", shown(0, "3"), shown(1, "4"), fields(3, ground_truth=hidden),
        shown(4, "3", solution=None),
    )  # fmt: skip
    assert impossible.main([str(file), "--out", str(tmp_path / "out")]) == 0
    path = tmp_path / "out" / f"{tmp_path.name}_own.jsonl"
    (task,) = read_tasks(path)
    (row,) = read_rows(path.with_suffix(".parquet"))
    assert (task.id, task.prompt) == ("own/0/impossible", "Write add0. assert add0(1, 2) == 4")
    assert row.prompt[0].content == task.prompt
    found = asyncio.run(compute_score("code", task.solution or "", row.reward_model.ground_truth))
    assert (found["visible_acc"], found["acc"], found["pass_ratio"], found["error"]) == (0, 0, 0.5, "wrong_answer")


def test_a_file_without_such_a_task_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = write_lines(tmp_path / "own.jsonl", fields(0))
    assert impossible.main([str(file), "--out", str(tmp_path / "out")]) == 1
    assert (
        "no task can be made impossible; it takes verifier code, a solution, and a shown test"
        in capsys.readouterr().err
    )
