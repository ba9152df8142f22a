"""A synchronous step is not trained on what answers a dead process left: verl takes a batch with those that there are.

Real: our trainer and verl's replay buffer. Made: the transfer queue, and what is known of dead processes.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import replay_buffer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.records.run_directory import RunDirectory
from recipe.runtime.death_watch import ProcessDied
from recipe.training.hooks import validation
from recipe.training.hooks.replay_buffers import Patience, PromptsFailError, WatchedReplayBuffer
from recipe.training.trainer import SkillCreditTrainer

PROMPTS, ANSWERS = 4, 2


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.prepare(str(tmp_path), "e", "r")


def sampled(monkeypatch: pytest.MonkeyPatch, run: RunDirectory, failed: int, share: float = 0.5) -> Any:
    """A buffer after a batch of which the last answer of so many prompts is missing, and that batch."""
    content: dict[str, Any] = {}
    for prompt in range(PROMPTS):
        bad = prompt < failed
        content[f"u{prompt}"] = {"is_prompt": True, "status": "failure" if bad else "finished", "global_steps": 3}
        content |= {f"u{prompt}_{answer}_0": {"seq_len": 1} for answer in range(ANSWERS - bad)}
    monkeypatch.setattr(replay_buffer.tq, "kv_list", lambda: {"train": content})
    monkeypatch.setattr(replay_buffer.tq, "kv_clear", lambda **_: None)
    verls: Any = replay_buffer.ReplayBuffer("sync", OmegaConf.create(), None, "drop", OmegaConf.create())
    made = WatchedReplayBuffer.in_place_of(verls, Patience(PROMPTS, masked_share=share), run)
    batch, _ = made.sample(3, "train", PROMPTS)
    return made, batch


def trainer(buffer: Any, engine: str = "vllm") -> Any:
    made: Any = SkillCreditTrainer.__new__(SkillCreditTrainer)
    made.replay_buffer, made.run_directory, made.global_steps = buffer, buffer._run, 3
    made.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"name": engine}}})
    made.llm_server_manager = SimpleNamespace(server_handles=["server"])
    return made


def test_missing_answers_are_an_event(monkeypatch: pytest.MonkeyPatch, run: RunDirectory):
    _, batch = sampled(monkeypatch, run, failed=1)
    assert len(batch.keys) == PROMPTS * ANSWERS - 1  # what verl would train on
    (event,) = run.events()
    assert (event["event"], event["step"], event["prompts"], event["batch"]) == ("failed_prompts", 3, 1, PROMPTS)
    sampled(monkeypatch, run, failed=0)
    assert len(run.events()) == 1


def test_more_failed_prompts_than_samples_may_be_masked_end_the_run(monkeypatch: pytest.MonkeyPatch, run: RunDirectory):
    sampled(monkeypatch, run, failed=2)
    with pytest.raises(PromptsFailError, match="step 3: 3 of 4 prompts failed: their agent loop or reward raises"):
        sampled(monkeypatch, run, failed=3)


def test_no_step_is_trained_after_a_death(monkeypatch: pytest.MonkeyPatch, run: RunDirectory):
    asked: list[Any] = []
    slept: list[int] = []

    def dead(engines: list[str], seconds: float) -> None:
        asked.append((engines, seconds > 0))
        raise ProcessDied("vLLM's engine died")

    monkeypatch.setattr(PPOTrainerSync, "on_sample_end", lambda self: slept.append(self.global_steps))
    monkeypatch.setattr(validation, "require_living", dead)
    for failed in (1, 0):
        with pytest.raises(ProcessDied, match="engine died"):
            trainer(sampled(monkeypatch, run, failed)[0]).on_sample_end()
    assert asked == [(["server"], True), (["server"], False)]
    assert not slept
    assert "update" not in [event["event"] for event in run.events()]


def test_a_validation_counts_for_nothing_after_a_death(monkeypatch: pytest.MonkeyPatch, run: RunDirectory):
    made = trainer(sampled(monkeypatch, run, failed=0)[0], engine="sglang")
    made.settings = SimpleNamespace(protocol=SimpleNamespace(val_n_of_others=None))
    made.val_dataloader = []
    monkeypatch.setattr(PPOTrainerSync, "_validate", lambda self: {"skill/mean/accuracy": 0.5})

    def dead(engines: list[str], seconds: float) -> None:
        raise ProcessDied(f"a worker died beside {engines}")

    monkeypatch.setattr(validation, "require_living", dead)
    with pytest.raises(ProcessDied, match=r"beside \[\]"):
        made._validate()
    assert run.metrics() == []
