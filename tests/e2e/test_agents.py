"""Agents on the real stack: several turns, credit for turns, retried prompts, spectrum, projection, merged adapters."""

import subprocess
import sys
from pathlib import Path

import pytest

from recipe.records.pictures import series
from recipe.records.run_directory import RunDirectory, read_jsonl
from tests.e2e.conftest import ROOT, quickstart, train
from tests.processes import PATIENCE

# The time limit of a module's first test includes its fixtures: the supervised start and whole runs.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

STEPS = 2


@pytest.fixture(scope="module")
def agents_run(micro_start: Path, tmp_path_factory: pytest.TempPathFactory, start) -> RunDirectory:
    """Two steps of the quickstart's model as a code agent and as an SQL agent."""
    root = tmp_path_factory.mktemp("outputs")
    data = root / "micro_agents"
    subprocess.run([sys.executable, "-m", "data_prep.micro", "--out", data, "--agents"], cwd=ROOT, check=True)
    command = train(
        *quickstart(micro_start), f"run.root={root}", "run.name=r", f"data.train_files={data}/train.parquet",
        f"data.val_files={data}/val.parquet", "data.val_max_samples=32", "data.max_response_length=320",
        "actor_rollout_ref.rollout.max_model_len=480", "agents=micro", "actor_rollout_ref.model.lora.merge=true",
        "credit=counterfactual", "credit.unit=turn", "credit.methods=[truncate]", "failures.share=0.25", "agop.every=1",
        # demands more gain for every skill than an unprojected step has, so it binds
        "projection=qp", "projection.epsilon=-0.3", "projection.epsilon_kind=cosine",
        f"trainer.total_training_steps={STEPS}", f"trainer.test_freq={STEPS}", "trainer.save_freq=-1",
        "run.generations_per_step=128",
        # Groups of two: in groups of eight one sample nearly always succeeds, so no prompt would fail.
        "actor_rollout_ref.rollout.n=2", "data.train_batch_size=64", "actor_rollout_ref.actor.ppo_mini_batch_size=64",
    )  # fmt: skip
    output, _ = (process := start(*command)).communicate(timeout=PATIENCE)
    assert process.returncode == 0, output[-6000:]
    return RunDirectory(root / "quickstart" / "r")


def _samples(run: RunDirectory) -> list[dict]:
    return list(read_jsonl(run.path / "generations" / "train_000001.jsonl"))


def test_agents_act_in_several_turns_and_some_fix_what_they_wrote(agents_run: RunDirectory):
    _, turns = series(agents_run.metrics(), "num_turns/max")
    assert turns == [6] * STEPS  # three turns of each side
    samples = [sample for sample in _samples(agents_run) if len(sample["credit_spans"]) > 1]
    assert samples
    assert any("\nfix f(" in sample["response"] for sample in samples)


def test_the_ids_that_are_trained_on_are_those_that_were_generated(agents_run: RunDirectory):
    """A different id anywhere before a token would give it different probabilities in the actor and the engine.

    So would weights from before the projection: each step draws its samples after the previous step's projection. And
    so would merged weights that verl rounds to bfloat16.
    """
    _, differences = series(agents_run.metrics(), "training/rollout_probs_diff_max")
    assert len(differences) == STEPS
    assert max(differences) < 0.02


def test_turns_have_credit_and_what_the_environment_said_has_none(agents_run: RunDirectory):
    for row in agents_run.metrics()[1:]:
        assert row["credit/replays"] > 0
        assert 0 < row["credit/advantage_shift"] <= 1
    for sample in _samples(agents_run):
        for (_, end), (start, _) in zip(sample["credit_spans"], sample["credit_spans"][1:], strict=False):
            assert end < start  # the environment's text is between two turns
        if "\ufffd" not in sample["response"]:  # one byte per token and character, except for invalid bytes
            of_a_turn = sum(step >= 0 for step in sample["credit_steps"])
            assert of_a_turn == sum(end - start for start, end in sample["credit_spans"])


def test_prompts_that_failed_wait_to_be_given_again(agents_run: RunDirectory):
    _, waiting = series(agents_run.metrics(), "failures/waiting")
    assert max(waiting) > 0


def test_the_gradients_of_eight_parts_have_a_spectrum(agents_run: RunDirectory):
    for row in agents_run.metrics()[1:]:
        assert 1 <= row["actor/agop/effective_rank"] <= 8
        assert row["actor/agop/eigenvalue_1"] >= row["actor/agop/eigenvalue_2"] > 0


def test_every_skill_gains_by_an_update_on_all_of_them_to_first_order(agents_run: RunDirectory):
    """The spectrum is measured on the same samples, in separate passes."""
    for row in agents_run.metrics()[1:]:
        assert row["actor/projection/projected_steps"] == 1
        assert row["actor/projection/unprotected_skills"] == 0
        for skill in ("write", "repair", "trace", "sql"):
            assert row[f"actor/projection/gradient_norm/{skill}"] > 0
            assert row[f"actor/projection/predicted_change/{skill}"] > 0
