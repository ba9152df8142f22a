"""Which groups an asynchronous step trains on: those of the plan, in its order, not those that finished first."""

from collections import Counter
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import replay_buffer

from recipe.records.run_directory import RunDirectory
from recipe.training.asynchronous.hooks import InOrderReplayBuffer
from recipe.training.asynchronous.prompts import DrawnPrompt
from recipe.training.hooks.replay_buffers import NoSignalError, Patience, PromptsFailError

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

    def clear(keys: list[str], **_: Any) -> None:
        for key in keys:
            content[partition].pop(key, None)

    monkeypatch.setattr(replay_buffer.tq, "kv_clear", clear)
    verls: Any = replay_buffer.ReplayBufferAsync("colocate_async", OmegaConf.create(), *strategy, OmegaConf.create())
    made = InOrderReplayBuffer.in_place_of(verls, Patience(batch=1), RunDirectory("nowhere"))
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


def test_prompts_that_fail_one_after_another_end_the_run(monkeypatch: pytest.MonkeyPatch):
    made = buffer(monkeypatch, ["finished", "finished", "failure"])
    made.refill_fn = lambda count: None
    made.sample(1, "train", 2)  # one failure, and a batch: counted anew
    made = buffer(monkeypatch, ["failure", "failure", "failure", "running"])
    made.refill_fn = lambda count: None
    with pytest.raises(PromptsFailError, match="step 1: 3 prompts failed since the last batch"):
        made.sample(1, "train", 2)


def test_groups_left_out_end_a_run_only_while_its_batch_is_incomplete(monkeypatch: pytest.MonkeyPatch):
    made = buffer(monkeypatch, ["finished"] * 4)
    made._patience = Patience(batch=1, batches=1)
    counts = {replay_buffer.DAPO_FILTERED_REWARD_COUNTS_KEY: Counter({0.0: 2})}
    monkeypatch.setattr(replay_buffer.ReplayBuffer, "_evict_terminal_groups", lambda *_: (set(), 0, 0, counts))
    monkeypatch.setattr(made, "_masked_flags", lambda partition, groups: [False] * len(groups))
    made._evict_terminal_groups(1, "train", (set(), set(UIDS[:2]), set(), Counter({0.0: 2})))  # two others are whole
    made._begin()
    with pytest.raises(NoSignalError, match="4 groups were left out since the last batch"):
        made._evict_terminal_groups(1, "train", (set(), set(UIDS[:4]), set(), Counter({0.0: 4})))
