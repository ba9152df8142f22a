"""Governance: kept rows, dropped rows with their reasons, and the report on them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep import govern
from data_prep.governance.audit import find
from data_prep.splits import ROLES
from data_prep.tasks import read_tasks, write_tasks
from tests.data_prep.task_examples import fields, task, write_lines

LONG = (
    "Given a list of 9 integers, return the sum of all those that are divisible by the second argument and were seen "
    "before the first negative one; when there is no such number the function returns minus one, and it raises an "
    "error for an empty list. Do not change the list that was handed in, and read each of its elements only once."
)
PROGRAM = """
def {0}(values, limit):
    total = 0
    for {1} in values:
        if {1} % limit == 0:
            total += {1} * 2
        else:
            total -= 1
    return total
"""


def kinds(*tasks):
    return [(finding.task, finding.other, finding.kind, finding.dropped) for finding in find(tasks)]


def test_the_same_prompt_in_other_words_layout_is_a_duplicate():
    assert kinds(task(0, prompt="Add  two\nnumbers."), task(1, prompt="add two NUMBERS")) == [
        (1, 0, "exact prompt duplicate", True)
    ]


def test_training_gives_way_to_dev_and_dev_to_test():
    tasks = task(0, prompt="p"), task(1, prompt="p", role="dev"), task(2, prompt="p", role="test")
    assert kinds(*tasks) == [(0, 2, "exact prompt leak", True), (1, 2, "exact prompt leak", True)]


def test_a_near_prompt_across_roles_is_a_leak():
    (found,) = find([task(0, prompt=LONG), task(1, prompt=LONG.replace("9", "8"), role="test")])
    assert (found.kind, found.dropped) == ("near prompt leak", True)
    assert 0.8 <= found.similarity < 1.0


def test_a_solution_with_other_names_is_a_leak_across_roles_and_a_note_within_one():
    one, other = PROGRAM.format("total_of", "value"), PROGRAM.format("g", "x")
    assert kinds(task(0, solution=one), task(1, solution=other, role="test")) == [(0, 1, "exact solution leak", True)]
    assert kinds(task(0, solution=one), task(1, solution=other)) == [(1, 0, "exact solution duplicate", False)]


def test_short_solutions_are_alike_by_chance():
    assert kinds(task(0), task(1, role="test")) == []


def test_test_tasks_are_reported_and_stay():
    assert kinds(task(0, prompt="p", role="test"), task(1, prompt="p", role="test")) == [
        (1, 0, "exact prompt duplicate", False)
    ]


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["train", "dev", "test"])), max_size=12))
def test_what_is_kept_has_every_prompt_once_and_all_of_test(drawn):
    tasks = [task(number, prompt=prompt, role=role) for number, (prompt, role) in enumerate(drawn)]
    kept = govern.Governed(tasks, find(tasks))
    once = [item.prompt for role in ("train", "dev") for item in kept.kept(role)]
    assert kept.kept("test") == [item for item in tasks if item.role == "test"]
    assert len(once) == len({*once})
    assert {*once} | {item.prompt for item in kept.kept("test")} == {prompt for prompt, _ in drawn}
    assert not {*once} & {item.prompt for item in kept.kept("test")}
    again = [item for role in ROLES for item in kept.kept(role)]
    assert not any(finding.dropped for finding in find(again))


def test_the_command_writes_what_it_says(tmp_path, capsys):
    prompt = "Add | two `numbers`"
    train = write_lines(tmp_path / "a.jsonl", fields(0, prompt=prompt), fields(1))
    test = write_lines(tmp_path / "b.jsonl", fields(2, prompt=prompt, role="test", split="held", licence="mit"))
    assert govern.main([str(train), str(test), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "train: 1 of 2 tasks kept",
        "dev: 0 of 0 tasks kept",
        "test: 1 of 1 tasks kept",
        f"1 leaks; see {tmp_path}/out/audit.md",
    ]
    assert [item.id for item in read_tasks(tmp_path / "out/train.jsonl")] == ["own/1"]
    manifest = [json.loads(line) for line in (tmp_path / "out/manifest.jsonl").read_text().splitlines()]
    assert [(item["id"], item["kept"], item["reason"], item["like"]) for item in manifest] == [
        ("own/0", False, "exact prompt leak", "own/2"),
        ("own/1", True, None, None),
        ("own/2", True, None, None),
    ]
    assert manifest[0]["hash"] == task(0, prompt=prompt).fingerprint() != manifest[1]["hash"]
    (leak,) = map(json.loads, (tmp_path / "out/leakage.jsonl").read_text().splitlines())
    assert (leak["id"], leak["like"], leak["part"], leak["similarity"]) == ("own/0", "own/2", "prompt", 1.0)
    report = (tmp_path / "out/audit.md").read_text()
    assert "| own | held | test | mit | 1 | 1 | 0 |" in report
    assert (
        "- exact prompt leak, similarity 1.00: `own/0` (train) and `own/2` (test)\n  - `Add | two 'numbers'`" in report
    )


def test_an_id_that_two_files_share_is_refused(tmp_path, capsys):
    for name in ("a.jsonl", "b.jsonl"):
        write_tasks(tmp_path / name, [task(0)])
    assert govern.main([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"), "--out", str(tmp_path / "out")]) == 1
    assert f"the id 'own/0' is also in {tmp_path}/a.jsonl;" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("threshold", ["0.4", "1.1"])
def test_a_threshold_that_the_search_can_not_keep_is_refused(tmp_path, capsys, threshold):
    with pytest.raises(SystemExit):
        govern.main(["x.jsonl", "--out", str(tmp_path), "--threshold", threshold])
    assert "not in [0.5, 1]" in capsys.readouterr().err
