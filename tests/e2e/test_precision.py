"""Weights that the trainer sends, all of them or adapters, reach vLLM, which packs them on a CPU, and are exported."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from recipe.records.pictures import series
from recipe.records.run_directory import RunDirectory
from tests.e2e.conftest import assert_engine_agrees, train

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

STEPS = 2
DUMMY = "actor_rollout_ref.rollout.load_format=dummy"
"""vLLM starts with random weights: the trainer sends the base weights too, before the first prompt."""
ONE_CORE = ("taskset", "-c", str(min(os.sched_getaffinity(0))))
# Largest mean |log-probability of the engine - the trainer's| of a sampled token.
ROUNDED, EXACT = 0.02, 1e-4
# All weights in float32: test_bpe.py.
KINDS = {
    "all weights in bfloat16": ((), ("adaptation=full", "run.precision=bfloat16"), ROUNDED),
    "base weights and adapters in bfloat16": ((), (DUMMY, "run.precision=bfloat16"), ROUNDED),
    "adapters in float32 on one core": (ONE_CORE, ("run.precision=float32",), EXACT),
}


@pytest.mark.parametrize(("cores", "words", "most"), KINDS.values(), ids=KINDS)
def test_the_engine_samples_from_the_weights_that_the_trainer_changed(
    cores: tuple[str, ...], words: tuple[str, ...], most: float, bpe_start: Path, tmp_path: Path, start
):
    """Old weights in the engine would differ from the trainer's by much more than rounding from the second step on."""
    command = train(
        "experiment=quickstart", *words, f"run.root={tmp_path}", "run.name=r",
        f"data.train_files={bpe_start}/train.parquet", f"data.val_files={bpe_start}/train.parquet",
        f"actor_rollout_ref.model.path={bpe_start}/model", "actor_rollout_ref.actor.optim.lr=1e-3",
        f"trainer.total_training_steps={STEPS}", "trainer.test_freq=-1", f"trainer.save_freq={STEPS}",
        "trainer.val_before_train=false",
    )  # fmt: skip
    output, _ = (process := start(*cores, *command)).communicate(timeout=900)
    assert process.returncode == 0, output[-6000:]
    run = RunDirectory(tmp_path / "quickstart" / "r")
    _, differences = series(run.metrics(), "rollout_corr/log_ppl_abs_diff")
    _, gradients = series(run.metrics(), "actor/grad_norm")
    _, rewards = series(run.metrics(), "critic/score/mean")
    assert len(differences) == len(gradients) == STEPS
    assert max(differences) < most
    assert_engine_agrees(run, STEPS)
    assert min(gradients) > 0.01  # what the second step samples from is not what the first did
    assert all(0 < reward < 1 for reward in rewards)
    exported = tmp_path / "model"
    export = [sys.executable, "-m", "recipe.export", str(run.path), "--out", str(exported), "--prompts", "0"]
    output, _ = (process := start(*export)).communicate(timeout=300)
    assert process.returncode == 0, output[-6000:]
    for folder in (bpe_start / "model", exported):  # any program can load them
        assert "attn_implementation" not in json.loads((folder / "config.json").read_text())
    assert _weights(exported).keys() == _weights(bpe_start / "model").keys()
    assert any((new != _weights(bpe_start / "model")[name]).any() for name, new in _weights(exported).items())


def _weights(folder: Path) -> dict[str, Any]:
    from transformers import AutoModelForCausalLM

    state: dict[str, Any] = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    return state
