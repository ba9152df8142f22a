"""Weights that the trainer sends, all or adapters, reach vLLM, which packs them on a CPU; English rows; export."""

from pathlib import Path

import pytest

from data_prep.english.suite import STANDARD
from recipe.records.pictures import series
from recipe.records.run_directory import RunDirectory
from tests.e2e.conftest import assert_engine_agrees, assert_exported, train
from tests.processes import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

STEPS = 2
ROUNDED = 0.02
"""Largest mean |log-probability of the engine - the trainer's| of a sampled token. In float32 it is 1e-4 (all weights:
test_bpe.py; adapters: test_training.py)."""


@pytest.mark.night
def test_the_engine_samples_from_all_weights_that_the_trainer_changed(bpe_start: Path, tmp_path: Path, start):
    words = ("experiment=quickstart", "adaptation=full", "run.precision=bfloat16")
    assert_exported(start, bpe_start, _trained(start, words, bpe_start, tmp_path))


def test_the_english_suite_is_trained_with_both_ideas_and_base_weights_that_the_trainer_sends(
    english_start: Path, tmp_path: Path, start
):
    """vLLM starts with random weights: the trainer sends base weights and adapters before the first prompt."""
    words = (
        "experiment=pretrained", "run.precision=bfloat16", "actor_rollout_ref.rollout.load_format=dummy",
        "credit=counterfactual", "projection=qp",
    )  # fmt: skip
    run = _trained(start, words, english_start, tmp_path)
    assert "credit_failed" not in {event["event"] for event in run.events()}
    for row in run.metrics()[-STEPS:]:
        assert row["credit/replays"] > 0
        assert row["actor/projection/skipped_steps"] == 0
        skills = [name for name in STANDARD if row[f"actor/projection/gradient_norm/{name}"] > 0]
        assert len(skills) >= 2  # that the step's prompts have
        assert all(row[f"actor/projection/predicted_change/{name}"] > -1e-6 for name in skills)
    assert_exported(start, english_start, run)


def _trained(start, words: tuple[str, ...], made: Path, root: Path) -> RunDirectory:
    """Two steps in which engine and trainer agreed.

    Old weights in the engine would differ from the trainer's by much more than rounding from the second step on.
    """
    command = train(
        *words, f"run.root={root}", "run.name=r", "run.experiment=made",
        f"data.train_files={made}/train.parquet", f"data.val_files={made}/train.parquet",
        f"actor_rollout_ref.model.path={made}/model", "actor_rollout_ref.actor.optim.lr=1e-3",
        f"trainer.total_training_steps={STEPS}", "trainer.test_freq=-1", f"trainer.save_freq={STEPS}",
        "trainer.val_before_train=false",
    )  # fmt: skip
    output, _ = (process := start(*command)).communicate(timeout=PATIENCE)
    assert process.returncode == 0, output[-6000:]
    run = RunDirectory(root / "made" / "r")
    _, differences = series(run.metrics(), "rollout_corr/log_ppl_abs_diff")
    _, gradients = series(run.metrics(), "actor/grad_norm")
    _, rewards = series(run.metrics(), "critic/score/mean")
    assert len(differences) == len(gradients) == STEPS
    assert max(differences) < ROUNDED
    assert_engine_agrees(run, STEPS)
    assert min(gradients) > 0.01  # what the second step samples from is not what the first did
    assert all(0 < reward < 1 for reward in rewards)
    return run
