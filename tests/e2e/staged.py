"""Staged runs of the asynchronous trainers with credit and projection, killed in the second stage and continued."""

import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

from recipe.records.pictures import series
from recipe.records.run_directory import RunDirectory
from tests.e2e.conftest import end_by_kill, quickstart, train, wait_for, without_checkpoint
from tests.processes import PATIENCE

STAGE_STEPS, SAVED_EVERY, PROMPTS, ANSWERS = 2, 2, 8, 4
STEPS = 2 * STAGE_STEPS


def killed_and_continued(
    begun: Path,
    root: Path,
    start: Callable[..., Popen[str]],
    *words: str,
    updates: int = 1,
    victim: str = "command",
    asked_to_stop: bool = False,
) -> RunDirectory:
    """Two stages, the second of which protects the first's skill; killed in the second, after its first update.

    words: the trainer, and its settings. updates: of a step. victim: what is killed. asked_to_stop: whether SIGTERM
    then ends the second start after the same update, and a third one comes to the end.
    """
    run = RunDirectory(root / "quickstart" / "r")
    actor, rollout, each = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", PROMPTS // updates
    command = train(
        *quickstart(begun), f"run.root={root}", "run.name=r", "credit=counterfactual", "projection=qp",
        "protocol=sequential", "protocol.skill_sequence=[repair,write]",
        f"protocol.stage_steps={STAGE_STEPS}", f"trainer.test_freq={STAGE_STEPS}", f"trainer.save_freq={SAVED_EVERY}",
        f"data.train_batch_size={PROMPTS}", f"{rollout}.n={ANSWERS}", f"{actor}.ppo_mini_batch_size={each}",
        f"{actor}.ppo_micro_batch_size_per_gpu={each * ANSWERS}",
        f"{rollout}.log_prob_micro_batch_size_per_gpu={each * ANSWERS}",
        "data.val_max_samples=32", "run.greedy_validation=false", *words,
    )  # fmt: skip
    with without_checkpoint(run, STEPS):  # a start that is killed late has not come to its end
        first = start(*command)
        wait_for(lambda: any(row["step"] == SAVED_EVERY + 1 for row in run.metrics()), first, seconds=PATIENCE)
        end_by_kill(first, victim)
    if asked_to_stop:
        second = start(*command)
        wait_for(lambda: len(starts(run)) == 2, second, seconds=PATIENCE)
        second.terminate()
        output, _ = second.communicate(timeout=PATIENCE)
        assert second.returncode == 128 + signal.SIGTERM, output[-4000:]
        assert f"SIGTERM ended it after step {SAVED_EVERY + 1}, with a checkpoint" in output
    last = start(*command)
    output, _ = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, output[-4000:]
    return run


def starts(run: RunDirectory) -> list[int]:
    """The steps from which the starts of the run went on."""
    return [event["step"] for event in run.events() if event["event"] == "ready"]


def of_steps(run: RunDirectory, name: str) -> list[float]:
    """A metric of each step."""
    return series([row for row in run.metrics() if row["step"] > 0], name)[1]


def assert_it_resumed_after(run: RunDirectory, *checkpoints: int) -> None:
    """Fail unless the run resumed from these checkpoints and ended with the plan, each step once."""
    assert starts(run) == [0, *checkpoints]
    assert [row["step"] for row in run.metrics()] == list(range(STEPS + 1))
    assert run.last_checkpoint == STEPS


def assert_generation_ran_ahead(run: RunDirectory) -> None:
    """Fail unless the first batch was answered by current weights, and a later one by earlier ones."""
    stale = of_steps(run, "async/stale_groups")
    assert len(stale) == STEPS
    assert stale[0] == 0
    assert max(stale) > 0


def assert_each_batch_is_the_plans(run: RunDirectory) -> None:
    """Fail unless each stage trained on its own prompts."""
    assert of_steps(run, "protocol/stage") == [1] * STAGE_STEPS + [2] * STAGE_STEPS
    assert of_steps(run, "async/earlier_stage_groups") == [0] * STEPS


def assert_both_ideas_worked(run: RunDirectory) -> None:
    """Fail unless each step had credit, and each update of the second stage a constraint."""
    replays = of_steps(run, "credit/replays")
    assert len(replays) == STEPS
    assert min(replays) > 0
    assert of_steps(run, "projection/active_constraints") == [0] * STAGE_STEPS + [1] * STAGE_STEPS
    assert of_steps(run, "reward/masked_share") == [0.0] * STEPS
    assert min(of_steps(run, "actor/projection/displacement_norm")) > 0
