"""All weights in bfloat16 on a CPU: what the trainer changes reaches vLLM, which packs its weights."""

import pytest

from recipe.records.pictures import series
from recipe.records.run_directory import RunDirectory
from tests.e2e.bpe_start import make_bpe_start
from tests.e2e.conftest import train

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

STEPS = 2


@pytest.fixture(scope="module")
def full_run(tmp_path_factory: pytest.TempPathFactory, start) -> RunDirectory:
    """Two steps without adapters, at a rate that moves every weight."""
    root = tmp_path_factory.mktemp("outputs")
    made = make_bpe_start(tmp_path_factory.mktemp("bpe"))
    command = train(
        "experiment=quickstart", "adaptation=full", "run.precision=bfloat16", f"run.root={root}", "run.name=r",
        f"data.train_files={made}/train.parquet", f"data.val_files={made}/train.parquet",
        f"actor_rollout_ref.model.path={made}/model", "actor_rollout_ref.actor.optim.lr=1e-3",
        f"trainer.total_training_steps={STEPS}", "trainer.test_freq=-1", "trainer.save_freq=-1",
        "trainer.val_before_train=false",
    )  # fmt: skip
    output, _ = (process := start(*command)).communicate(timeout=900)
    assert process.returncode == 0, output[-6000:]
    return RunDirectory(root / "quickstart" / "r")


def test_the_engine_samples_from_the_weights_that_the_trainer_changed(full_run: RunDirectory):
    """Old weights in the engine would differ from the trainer's by much more than rounding from the second step on."""
    _, differences = series(full_run.metrics(), "training/rollout_probs_diff_mean")
    assert len(differences) == STEPS
    assert max(differences) < 0.01
    _, moved = series(full_run.metrics(), "actor/projection/displacement_norm")
    assert min(moved) > 0.1


def test_what_was_verified_is_told_apart(full_run: RunDirectory):
    _, rewards = series(full_run.metrics(), "critic/score/mean")
    assert all(0 < reward < 1 for reward in rewards)
