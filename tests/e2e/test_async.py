"""The asynchronous trainer on the real stack: stages, credit and projection, killed and continued."""

from pathlib import Path

import pytest

from recipe.records.run_directory import RunDirectory
from tests.e2e.staged import (
    SAVED_EVERY,
    STEPS,
    assert_both_ideas_worked,
    assert_each_batch_is_the_plans,
    assert_generation_ran_ahead,
    assert_it_went_on_after_the_checkpoint,
    killed_and_continued,
    of_steps,
)

# The time limit of a module's first test includes its fixtures: the supervised start and whole runs.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def staged(micro_start: Path, tmp_path_factory: pytest.TempPathFactory, start) -> RunDirectory:
    return killed_and_continued(
        micro_start, tmp_path_factory.mktemp("outputs"), start,
        "trainer.v1.trainer_mode=skillcredit_colocate_async", "protocol.memory_per_protected=2",
    )  # fmt: skip


def test_it_goes_on_after_the_checkpoint_and_ends_with_the_plan(staged: RunDirectory):
    assert_it_went_on_after_the_checkpoint(staged)


def test_generation_ran_ahead_of_training(staged: RunDirectory):
    assert_generation_ran_ahead(staged)


def test_answers_that_an_update_interrupted_are_continued(staged: RunDirectory):
    continued = of_steps(staged, "async/continued_samples")
    assert continued[0] == 0
    assert max(continued) > 0


def test_the_continued_run_draws_the_prompts_that_would_have_come(staged: RunDirectory):
    events = staged.events()
    (_, again) = [place for place, event in enumerate(events) if event["event"] == "ready"]
    drawn = [event for event in events if event["event"] == "prompts"]
    before = [event["digest"] for event in drawn if event["time"] < events[again]["time"]]
    after = [event["digest"] for event in drawn if event["time"] >= events[again]["time"]]
    saved = 1 + SAVED_EVERY  # batches by then: one ahead, and one of each step
    assert before[saved] == after[0]
    assert len({*before[:saved], *after}) == STEPS  # no batch for which no step is left, and none twice


def test_each_batch_is_the_plans(staged: RunDirectory):
    assert_each_batch_is_the_plans(staged)


def test_credit_and_projection_work_on_the_answers_that_arrive(staged: RunDirectory):
    assert_both_ideas_worked(staged)
