"""Failed prompts: unique by task, retried in order of failure, removed once solved, kept in checkpoints."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu

from recipe.training.failure_buffer import FailureBuffer
from recipe.training.trainer import SkillCreditTrainer
from rewards.skills import task_of


def filled(*tasks: str, capacity: int = 10) -> FailureBuffer:
    buffer = FailureBuffer(capacity)
    buffer.record((task, False) for task in tasks)
    return buffer


def test_a_task_is_kept_once_however_often_it_fails():
    buffer = filled("a", "b", "a", "a")
    buffer.record([("a", False)])
    assert len(buffer) == 2
    assert buffer.draw(10) == ["a", "b"]


def test_one_right_sample_of_a_group_is_no_failure_and_takes_the_task_out():
    buffer = filled("a", "b")
    buffer.record([("a", False), ("a", True), ("a", False), ("c", True), ("c", False)])
    assert buffer.draw(10) == ["b"]


def test_what_was_tried_again_waits_behind_the_others_until_it_is_solved():
    buffer = filled("a", "b", "c")
    assert [buffer.draw(2) for _ in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_a_task_that_the_batch_holds_anyway_is_not_drawn_beside_it():
    buffer = filled("a", "b", "c")
    assert buffer.draw(2, without=["a"]) == ["b", "c"]
    assert buffer.draw(1) == ["a"]


def test_the_capacity_drops_what_has_waited_longest():
    assert filled("a", "b", "c", capacity=2).draw(10) == ["b", "c"]


def test_a_checkpoint_continues_the_queue_and_one_without_it_begins_an_empty_one(tmp_path):
    buffer = filled("a", "b", "c")
    buffer.draw(1)
    buffer.save(tmp_path / "global_step_3")
    again = filled("x")
    again.load(tmp_path / "global_step_3")
    assert again.draw(3) == buffer.draw(3) == ["b", "c", "a"]
    again.load(tmp_path)
    assert len(again) == 0


def test_rows_are_named_by_their_id():
    assert (task_of({"id": "t/1", "index": 4}), task_of({"index": 4})) == ("t/1", "4")


def row(number: int) -> dict:
    prompt = [{"role": "user", "content": str(number)}]
    return {"raw_prompt": prompt, "extra_info": {"id": f"t/{number}"}, "dummy_tensor": torch.tensor([number])}


class DataSet:
    dataframe = {"extra_info": [row(number)["extra_info"] for number in range(10)]}  # noqa: RUF012

    def __getitem__(self, number: int) -> dict:
        return row(number)


def verls_batch(self) -> object:
    fields: dict[str, Any] = {name: np.array([None] * 4, dtype=object) for name in ("raw_prompt", "extra_info", "uid")}
    for number in range(4):
        fields["raw_prompt"][number], fields["extra_info"][number] = (
            row(number)["raw_prompt"],
            row(number)["extra_info"],
        )
        fields["uid"][number] = f"u{number}"
    return tu.get_tensordict(fields | {"dummy_tensor": torch.arange(4)[:, None]})


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        ([7, 9, 8], [0, 1, 7, 9]),  # half of the batch
        ([7], [0, 1, 2, 7]),  # no more than the buffer has
        ([0, 42], [0, 1, 2, 3]),  # one already in the batch, one missing from the data
        ([2], [0, 1, 2, 3]),  # a retried prompt of the batch keeps its place and does not appear twice
        ([3, 7], [0, 1, 2, 7]),
        ([], [0, 1, 2, 3]),
    ],
)
def test_a_share_of_the_prompts_makes_room_for_failed_ones(monkeypatch, failed, expected):
    monkeypatch.setattr(PPOTrainerSync, "_fetch_one_gen_batch", verls_batch)
    trainer = SkillCreditTrainer.__new__(SkillCreditTrainer)
    trainer.schedule = None
    trainer.failures = filled(*(f"t/{number}" for number in failed))
    settings: Any = SimpleNamespace(failures=SimpleNamespace(share=0.5))
    trainer.settings = settings
    trainer.train_dataset = DataSet()
    batch = trainer._fetch_one_gen_batch()
    assert [info["id"] for info in batch["extra_info"]] == [f"t/{number}" for number in expected]
    assert batch["dummy_tensor"].flatten().tolist() == expected
    assert [prompt[0]["content"] for prompt in batch["raw_prompt"]] == [str(number) for number in expected]
    assert len(set(batch["uid"])) == 4
