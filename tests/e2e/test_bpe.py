"""Credit, agents and evaluation with a tokenizer like pretrained models': subwords, unlisted special tokens.

The byte tokenizer of the other runs has neither tokens of several characters nor special tokens that the tokenizer does
not list.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from recipe.evaluation.folder import EvaluationFolder
from recipe.records.pictures import series
from recipe.records.run_directory import RunDirectory, read_jsonl
from tests.e2e.bpe_start import make_bpe_start
from tests.e2e.conftest import ROOT, train

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

STEPS = 2


@pytest.fixture(scope="module")
def bpe_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bpe_start(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="module")
def bpe_run(bpe_start: Path, tmp_path_factory: pytest.TempPathFactory, start) -> RunDirectory:
    """Two steps of agents with credit for the statements of their answers."""
    root = tmp_path_factory.mktemp("outputs")
    command = train(
        "experiment=quickstart", f"run.root={root}", "run.name=r", f"data.train_files={bpe_start}/train.parquet",
        f"data.val_files={bpe_start}/train.parquet", f"actor_rollout_ref.model.path={bpe_start}/model",
        "data.max_response_length=160", "actor_rollout_ref.rollout.max_model_len=320", "agents=micro",
        "credit=counterfactual", "run.generations_per_step=128",
        f"trainer.total_training_steps={STEPS}", "trainer.test_freq=-1", "trainer.save_freq=-1",
        "trainer.val_before_train=false",
    )  # fmt: skip
    output, _ = (process := start(*command)).communicate(timeout=900)
    assert process.returncode == 0, output[-6000:]
    return RunDirectory(root / "quickstart" / "r")


def _samples(run: RunDirectory) -> list[dict]:
    paths = [run.path / "generations" / f"train_{step:06d}.jsonl" for step in range(1, STEPS + 1)]
    return [sample for path in paths for sample in read_jsonl(path)]


def test_credit_fails_for_no_sample_and_moves_advantage_in_every_step(bpe_run: RunDirectory):
    rows = [row for row in bpe_run.metrics() if row["step"]]
    assert len(rows) == STEPS
    for row in rows:
        assert row.get("credit/uncredited/failed", 0.0) == 0.0
        assert row["credit/replays"] > 0
        assert row["credit/fallback_rate"] < 1
        assert row["credit/advantage_shift"] > 0
    assert "credit_failed" not in {event["event"] for event in bpe_run.events()}


def test_every_statement_has_tokens_fewer_than_its_characters(bpe_run: RunDirectory):
    credited = [sample for sample in _samples(bpe_run) if len(sample["credit_spans"]) > 1]
    assert credited
    for sample in credited:
        for number, (start, end) in enumerate(sample["credit_spans"]):
            statement = sample["response"][start:end]
            assert statement == statement.strip() != ""
            assert 1 <= sample["credit_steps"].count(number) <= len(statement)
    # A statement of two digits may have two tokens, but all statements together have fewer tokens than characters.
    spanned = sum(end - start for sample in credited for start, end in sample["credit_spans"])
    assert sum(step >= 0 for sample in credited for step in sample["credit_steps"]) < spanned


def test_agents_answer_in_several_turns_and_what_was_generated_is_what_is_trained_on(bpe_run: RunDirectory):
    _, turns = series(bpe_run.metrics(), "num_turns/max")
    assert turns == [6] * STEPS  # three turns of each side
    # No newline: verl adds the one between ChatML turns for Qwen's model types only.
    assert any("fix f(" in sample["response"] and sample["credit_spans"] for sample in _samples(bpe_run))
    _, differences = series(bpe_run.metrics(), "training/rollout_probs_diff_max")
    assert len(differences) == STEPS
    assert max(differences) < 0.02


def test_an_evaluation_with_agents_reads_its_answers(bpe_start: Path, tmp_path: Path):
    command = [sys.executable, "-m", "recipe.evaluate", "--model", str(bpe_start / "model"), "--agents", "micro"]
    command += ["--data", f"micro={bpe_start / 'train.parquet'}", "--limit", "16", "--out", str(tmp_path / "out")]
    command += ["--protocol", "eval@k", "--samples", "2", "--max-tokens", "64", "--vllm=--max-model-len=320"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = EvaluationFolder(tmp_path / "out")
    everything = found.metrics["micro"]
    assert (everything["problems"], everything["samples"], everything["not_judged"]) == (16, 32, 0)
    # It was trained on the right answer to each of these problems twice as often as on a wrong one.
    assert everything["first_turn_accuracy"]["estimate"] > 0.2
    said = [
        message["content"]
        for sample in found.journal().samples.values()
        for message in sample.answer.conversation
        if message["role"] == "assistant"
    ]
    assert not any("<|" in text for text in said)
