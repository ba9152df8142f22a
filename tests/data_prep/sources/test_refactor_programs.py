"""Refactoring tasks: both versions of a program pass its tests, and no program that behaves differently does."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.sources import refactor
from data_prep.sources.refactor import FOLDS, ItemStep, Pipeline, random_pipeline
from data_prep.tasks import read_tasks
from rewards.sandbox import AssertCase, CheckResult, Program, Sandbox
from rewards.verifiers.refactor import is_tidy, statements


def test_a_pipeline_written_plainly_is_one_comprehension():
    steps = (ItemStep("+", 3), ItemStep("<=", 9), ItemStep("*", 2), ItemStep("!=", 4))
    written = {
        "list": "[(item + 3) * 2 for item in values if item + 3 <= 9 and (item + 3) * 2 != 4]",
        "smallest": "min(((item + 3) * 2 for item in values if item + 3 <= 9 and (item + 3) * 2 != 4), default=0)",
    }
    for fold, expression in written.items():
        assert Pipeline(steps, fold).plain() == f"def f(values):\n    return {expression}"
    assert Pipeline(steps, "list").returns([-1, 5, 7]) == [16]
    assert {fold: Pipeline((), fold).returns([]) for fold in FOLDS} == {
        **{"list": [], "sum": 0, "count": 0, "largest": 0, "smallest": 0}
    }


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from(refactor.LEVELS))
def test_the_lists_of_a_pipeline_tell_it_from_every_neighbour(seed, steps):
    pipeline, lists = random_pipeline(random.Random(seed), steps)
    assert len(pipeline.steps) == steps
    assert lists[0] == []
    for other in pipeline.neighbours():
        assert any(other.returns(values) != pipeline.returns(values) for values in lists), other


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
@pytest.mark.slow
def test_the_solution_keeps_what_the_prompt_asks_for_and_the_original_does_not(seed):
    fields = refactor.draw(random.Random(seed))
    assert fields == refactor.draw(random.Random(seed))
    truth, solution = fields["ground_truth"], fields["solution"]
    assert is_tidy(solution)
    assert statements(solution) == 2 < truth["max_statements"] == statements(truth["original"]) // 2
    assert f"```python\n{truth['original']}\n```" in fields["prompt"]
    assert f"in at most {truth['max_statements']} statements" in fields["prompt"]
    assert solution not in fields["prompt"]


@pytest.mark.slow  # with the sandbox
@pytest.mark.parametrize("steps", refactor.LEVELS)
async def test_both_ways_of_writing_pass_and_every_neighbour_fails(steps):
    async with Sandbox() as sandbox:
        for seed in range(8):
            rng = random.Random(f"{steps}/{seed}")
            pipeline, lists = random_pipeline(rng, steps)
            cases = [AssertCase(f"assert f({values}) == {pipeline.returns(values)}") for values in lists]
            right = [pipeline.plain(), *(pipeline.needless(rng) for _ in range(3))]
            wrong = [other.plain() for other in pipeline.neighbours()]
            results = await sandbox.check_many([Program(source) for source in right + wrong], cases)
            judged = [result.all_passed for result in results if isinstance(result, CheckResult)]
            assert judged == [True] * len(right) + [False] * len(wrong)


@pytest.mark.slow
def test_the_command_proves_its_tasks(tmp_path, capsys):
    assert refactor.main(["--out", str(tmp_path), "--limit", "200", "--levels", "1", "3", "--seed", "4"]) == 0
    train = read_tasks(tmp_path / "train.jsonl")
    assert (len(train), {item.notes["level"] for item in train}) == (200, {1, 3})
    assert {item.verifier for item in train} == {"refactor"}
    held_out = {item.solution for split in ("dev", "test") for item in read_tasks(tmp_path / f"{split}.jsonl")}
    assert not held_out & {item.solution for item in train}
    assert "0 rows have no solution to prove; 0 problems refused" in capsys.readouterr().out
