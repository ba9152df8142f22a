"""The asynchronous trainer on the real stack: stages, credit and projection; its actor is killed, then it is
asked to stop, and goes on each time."""

from itertools import pairwise
from pathlib import Path

import pytest

from recipe.records.run_directory import RunDirectory
from tests.e2e.conftest import quickstart, train
from tests.e2e.staged import (
    SAVED_EVERY,
    STEPS,
    assert_both_ideas_worked,
    assert_each_batch_is_the_plans,
    assert_generation_ran_ahead,
    assert_it_resumed_after,
    killed_and_continued,
)
from tests.processes import PATIENCE

# The time limit of a module's first test includes its fixtures: the supervised start and whole runs.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def staged(micro_start: Path, tmp_path_factory: pytest.TempPathFactory, start) -> RunDirectory:
    return killed_and_continued(
        micro_start, tmp_path_factory.mktemp("outputs"), start,
        "trainer.v1.trainer_mode=skillcredit_colocate_async", "protocol.memory_per_protected=2",
        victim="actor", asked_to_stop=True,
    )  # fmt: skip


STOPPED_AFTER = SAVED_EVERY + 1
"""The step during which SIGTERM asks the second start to stop."""


@pytest.mark.night
def test_it_continues_after_each_checkpoint_and_ends_with_the_plan(staged: RunDirectory):
    assert_it_resumed_after(staged, SAVED_EVERY, STOPPED_AFTER)


@pytest.mark.night
def test_sigterm_saves_the_step_under_way_and_none_is_trained_again(staged: RunDirectory):
    events = [event for event in staged.events() if event["event"] in ("ready", "step", "stop")]
    again = [place for place, event in enumerate(events) if event["event"] == "ready"][1]
    done = [(event["event"], event["step"]) for event in events[again:]]
    asked, last = ("ready", SAVED_EVERY), ("ready", STOPPED_AFTER)
    rest = [("step", step) for step in range(STOPPED_AFTER + 1, STEPS + 1)]
    assert done == [asked, ("stop", STOPPED_AFTER), ("step", STOPPED_AFTER), last, *rest]


@pytest.mark.night
def test_generation_ran_ahead_of_training(staged: RunDirectory):
    assert_generation_ran_ahead(staged)


@pytest.mark.night
def test_the_continued_runs_draw_the_prompts_that_would_have_come(staged: RunDirectory):
    events = [event for event in staged.events() if event["event"] in ("ready", "prompts")]
    begun = [place for place, event in enumerate(events) if event["event"] == "ready"]
    killed, asked, last = (
        [event["digest"] for event in events[first + 1 : end]] for first, end in pairwise([*begun, len(events)])
    )
    saved = 1 + SAVED_EVERY  # batches by then: one ahead, and one of each step
    again = [*asked, *last]
    drawn = [*killed[:saved], *again]
    assert len(drawn) == len(set(drawn)) == STEPS  # no batch for which no step is left, and none twice
    assert killed[saved:] == again[: len(killed) - saved]


@pytest.mark.night
def test_each_batch_is_the_plans(staged: RunDirectory):
    assert_each_batch_is_the_plans(staged)


@pytest.mark.night
def test_credit_and_projection_work_on_the_answers_that_arrive(staged: RunDirectory):
    assert_both_ideas_worked(staged)


def test_an_engine_that_lost_the_trained_adapter_ends_the_run(micro_start: Path, tmp_path: Path, start):
    run = RunDirectory(tmp_path / "quickstart" / "r")
    extension = "tests.e2e.lost_adapter.LosesLaterAdapters"
    process = start(*train(
        *quickstart(micro_start), f"run.root={tmp_path}", "run.name=r", "trainer.total_training_steps=4",
        "trainer.v1.trainer_mode=skillcredit_colocate_async", "trainer.val_before_train=false",
        "data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4", "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
        f"actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls={extension}",
    ))  # fmt: skip
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, output[-4000:]
    assert "after step 1 the engine computes with adapter" in output
    assert not any(row["step"] > 1 for row in run.metrics())
