"""Which groups an asynchronous step trains on: those of the plan, in its order, not those that finished first."""

from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import replay_buffer

from recipe.training.asynchronous.prompts import DrawnPrompt
from recipe.training.asynchronous.replay import InOrderReplayBuffer

UIDS = [DrawnPrompt(number).uid() for number in range(5)]


def buffer(
    monkeypatch: pytest.MonkeyPatch,
    statuses: list[str],
    partition: str = "train",
    strategy: tuple[int, str] = (8, "drop"),
) -> InOrderReplayBuffer:
    tags = [{"is_prompt": True, "status": status, "global_steps": 1} for status in statuses]
    content = {partition: dict(zip(UIDS, tags, strict=False))}
    for uid in [uid for uid, status in zip(UIDS, statuses, strict=False) if status == "finished"]:
        content[partition][f"{uid}_0_0"] = {"seq_len": 1}
    monkeypatch.setattr(replay_buffer.tq, "kv_list", lambda: content)
    monkeypatch.setattr(replay_buffer.tq, "kv_clear", lambda **_: None)
    made: Any = InOrderReplayBuffer("colocate_async", OmegaConf.create(), *strategy, OmegaConf.create())
    made._sync_metadata_from_transfer_queue()
    return made


def ready(made: InOrderReplayBuffer, partition: str = "train") -> bool:
    return made._has_enough_samples(1, partition, 2, set(made.finished_keys[partition]))


def test_a_batch_waits_for_the_prompts_that_were_drawn_first(monkeypatch: pytest.MonkeyPatch):
    assert not ready(buffer(monkeypatch, ["finished", "running", "finished", "finished"]))
    assert not ready(buffer(monkeypatch, ["pending", "finished", "finished", "finished"]))
    assert not ready(buffer(monkeypatch, ["finished"]))
    assert ready(buffer(monkeypatch, ["finished", "finished", "running", "pending"]))


def test_verls_limit_on_versions_of_weights_is_kept_by_waiting(monkeypatch: pytest.MonkeyPatch):
    statuses = ["finished", "finished", "running"]
    assert not ready(buffer(monkeypatch, statuses, strategy=(1, "wait")))
    assert ready(buffer(monkeypatch, statuses, strategy=(2, "wait")))


def test_a_batch_has_the_groups_in_the_order_of_drawing(monkeypatch: pytest.MonkeyPatch):
    made = buffer(monkeypatch, ["finished"] * 5)
    batch, _ = made.sample(1, "train", 3)
    assert batch.keys == [f"{uid}_0_0" for uid in UIDS[:3]]


def test_a_validation_takes_all_of_its_prompts(monkeypatch: pytest.MonkeyPatch):
    assert ready(buffer(monkeypatch, ["finished", "running", "finished"], "val"), "val")
