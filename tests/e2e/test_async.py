"""The asynchronous trainer on the real stack: stages, credit and projection, killed and continued."""

from pathlib import Path

import pytest

from recipe.records.pictures import series
from recipe.records.run_directory import RunDirectory
from tests.e2e.conftest import quickstart, train, wait_for, wait_until_gone
from tests.processes import living_descendants

# The time limit of a module's first test includes its fixtures: the supervised start and whole runs.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

STAGE_STEPS, SAVED_EVERY, PROMPTS, ANSWERS = 2, 2, 8, 4
STEPS = 2 * STAGE_STEPS
AT_ONCE = 1
"""Answers that the engine samples at once: the batch ahead takes seconds after the first is whole."""


@pytest.fixture(scope="module")
def killed_and_continued(micro_start: Path, tmp_path_factory: pytest.TempPathFactory, start) -> RunDirectory:
    """Two stages, the second of which protects the first's skill; killed in the second, after its first update."""
    root = tmp_path_factory.mktemp("outputs")
    run = RunDirectory(root / "quickstart" / "r")
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    command = train(
        *quickstart(micro_start), f"run.root={root}", "run.name=r",
        "trainer.v1.trainer_mode=skillcredit_colocate_async", "credit=counterfactual", "projection=qp",
        "protocol=sequential", "protocol.skill_sequence=[repair,write]", "protocol.memory_per_protected=2",
        f"protocol.stage_steps={STAGE_STEPS}", f"trainer.test_freq={STAGE_STEPS}", f"trainer.save_freq={SAVED_EVERY}",
        f"data.train_batch_size={PROMPTS}", f"{actor}.ppo_mini_batch_size={PROMPTS}", f"{rollout}.n={ANSWERS}",
        f"{actor}.ppo_micro_batch_size_per_gpu={PROMPTS * ANSWERS}",
        f"{rollout}.log_prob_micro_batch_size_per_gpu={PROMPTS * ANSWERS}", f"{rollout}.max_num_seqs={AT_ONCE}",
        "data.val_max_samples=32", "run.greedy_validation=false",
    )  # fmt: skip
    first = start(*command)
    wait_for(lambda: any(row["step"] == SAVED_EVERY + 1 for row in run.metrics()), first, seconds=1500)
    children = living_descendants(first.pid)
    first.kill()
    first.wait()
    wait_until_gone(children)
    second = start(*command)
    output, _ = second.communicate(timeout=1500)
    assert second.returncode == 0, output[-4000:]
    return run


def _steps(run: RunDirectory, name: str) -> list[float]:
    """A metric of each step."""
    return series([row for row in run.metrics() if row["step"] > 0], name)[1]


def test_it_goes_on_after_the_checkpoint_and_ends_with_the_plan(killed_and_continued: RunDirectory):
    first, second = [event for event in killed_and_continued.events() if event["event"] == "ready"]
    assert (first["step"], second["step"]) == (0, SAVED_EVERY)
    assert [row["step"] for row in killed_and_continued.metrics()] == list(range(STEPS + 1))
    assert killed_and_continued.last_checkpoint == STEPS


def test_generation_ran_ahead_of_training(killed_and_continued: RunDirectory):
    stale = _steps(killed_and_continued, "async/stale_groups")
    assert len(stale) == STEPS
    assert stale[0] == 0
    assert max(stale) > 0


def test_answers_that_an_update_interrupted_are_continued(killed_and_continued: RunDirectory):
    continued = _steps(killed_and_continued, "async/continued_samples")
    assert continued[0] == 0
    assert max(continued) > 0


def test_the_continued_run_draws_the_prompts_that_would_have_come(killed_and_continued: RunDirectory):
    events = killed_and_continued.events()
    (_, again) = [place for place, event in enumerate(events) if event["event"] == "ready"]
    drawn = [event for event in events if event["event"] == "prompts"]
    before = [event["digest"] for event in drawn if event["time"] < events[again]["time"]]
    after = [event["digest"] for event in drawn if event["time"] >= events[again]["time"]]
    saved = 1 + SAVED_EVERY  # batches by then: one ahead, and one of each step
    assert before[saved] == after[0]
    assert len({*before[:saved], *after}) == STEPS  # no batch for which no step is left, and none twice


def test_each_batch_is_the_plans(killed_and_continued: RunDirectory):
    assert _steps(killed_and_continued, "protocol/stage") == [1, 1, 2, 2]
    assert _steps(killed_and_continued, "async/earlier_stage_groups") == [0] * STEPS


def test_credit_and_projection_work_on_the_answers_that_arrive(killed_and_continued: RunDirectory):
    replays = _steps(killed_and_continued, "credit/replays")
    assert len(replays) == STEPS
    assert min(replays) > 0
    assert _steps(killed_and_continued, "projection/active_constraints") == [0, 0, 1, 1]
    assert _steps(killed_and_continued, "reward/masked_share") == [0.0] * STEPS
    assert min(_steps(killed_and_continued, "actor/projection/displacement_norm")) > 0
