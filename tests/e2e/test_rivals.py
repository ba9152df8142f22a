"""Rivals of credit and the informative choice on the real stack: two updates each."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.records.run_directory import RunDirectory, read_jsonl
from tests.e2e.conftest import ROOT, train

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

TURNS = ("data.max_response_length=320", "actor_rollout_ref.rollout.max_model_len=480", "agents=micro")
CHOSEN = ("credit.methods=[delete,replace]", "credit.choice=informative", "credit.budget=8", "credit.coverage=true")


@pytest.mark.parametrize(
    ("arm", "options"),
    [("vineppo", ()), ("spo", ()), ("gigpo", TURNS), ("credit_turns", TURNS), ("credit", CHOSEN)],
)
def test_an_arm_trains_with_the_credit_that_it_is_named_for(
    arm: str, options: tuple[str, ...], micro_start: Path, tmp_path: Path, start
):
    data = micro_start
    if "agents=micro" in options:
        data = tmp_path / "agents"
        subprocess.run([sys.executable, "-m", "data_prep.micro", "--out", data, "--agents"], cwd=ROOT, check=True)
    command = train(
        "experiment=quickstart", f"run.root={tmp_path}", "run.name=r", f"arm={arm}", *options,
        f"data.train_files={data}/train.parquet", f"data.val_files={data}/val.parquet", "run.generations_per_step=32",
        "trainer.total_training_steps=2", "trainer.test_freq=-1", "trainer.val_before_train=false",
        "trainer.save_freq=-1", "data.train_batch_size=8", "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32",
    )  # fmt: skip
    output, _ = (process := start(*command)).communicate(timeout=900)
    assert process.returncode == 0, output[-6000:]
    run = RunDirectory(tmp_path / "quickstart" / "r")
    rows = [row for row in run.metrics() if "credit/replays" in row]
    assert len(rows) == 2
    for row in rows:
        assert row["actor/grad_norm"] > 0
        assert row["credit/advantage_shift"] > 0
        assert row["credit/fallback_rate"] < 1
        assert "credit/uncredited/failed" not in row
        assert (row["credit/replays"] > 0) == (arm != "gigpo")
        assert (row["credit/generated_tokens"] > 0) == (arm in ("vineppo", "spo"))
    samples = [sample for step in (1, 2) for sample in read_jsonl(run.path / f"generations/train_{step:06d}.jsonl")]
    assert any(len(sample["credit_values"]) > 1 for sample in samples)
    for sample in samples:
        for credit, tests in zip(sample["credit_values"], sample["credit_tests"], strict=True):
            if tests and credit is not None and math.isfinite(credit):
                assert sum(tests) / len(tests) == pytest.approx(credit, abs=1e-5)  # R is the share of tests passed
