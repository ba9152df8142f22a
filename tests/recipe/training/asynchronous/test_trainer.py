"""The asynchronous trainer's own steps: prompts, what it reads from the samples, its checkpoint, when it draws more."""

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync

from recipe.records.run_directory import RunDirectory
from recipe.runtime.stop_request import FILE
from recipe.training.asynchronous import hooks as module
from recipe.training.asynchronous.prompts import DRAWN, DrawnPrompt, PromptStream
from recipe.training.asynchronous.trainer import SkillCreditColocateTrainer
from recipe.training.hooks import step
from recipe.training.retries import prompt_batch
from recipe.training.schedule import StepPrompts

STAGES = [0, 0, 1]


def trainer(at: Any = None) -> SkillCreditColocateTrainer:
    made = SkillCreditColocateTrainer.__new__(SkillCreditColocateTrainer)
    made.train_dataset = [{"extra_info": {"id": row}, "dummy_tensor": torch.tensor([row])} for row in range(9)]
    plan = SimpleNamespace(steps=3, stage=torch.tensor(STAGES))
    schedule: Any = SimpleNamespace(at=at, plan=plan)
    made.schedule = schedule
    made._stream = PromptStream(made.schedule)
    made.global_steps = 2
    return made


def test_prompts_come_one_by_one_with_their_place_and_a_number_for_their_seed():
    made = trainer(lambda step: StepPrompts([step, 7], [False, True]))
    batches = [made._fetch_one_gen_batch() for _ in range(3)]
    assert [batch["dummy_tensor"].flatten().tolist() for batch in batches] == [[1], [7], [2]]
    places = [DrawnPrompt(**fields) for batch in batches for fields in list(batch[DRAWN])]
    assert places == [DrawnPrompt(0, 1), DrawnPrompt(1, 1, memory=True), DrawnPrompt(2, 2)]
    numbers = [next(iter(batch["uid"])).split("-")[0] for batch in batches]
    assert [int(number) for number in numbers] == [0, 1, 2]
    assert [made._times_before(batch) for batch in batches] == [[0], [1], [2]]


def test_verl_joins_prompts_to_a_batch_that_keeps_their_places():
    made = trainer(lambda step: StepPrompts([step, 7], [False, True]))
    made.config = OmegaConf.create({"data": {"train_batch_size": 3, "gen_batch_size": 1}})
    batch = made._next_train_batch()
    assert batch["dummy_tensor"].flatten().tolist() == [1, 7, 2]
    assert list(batch[DRAWN]) == [asdict(DrawnPrompt(0, 1)), asdict(DrawnPrompt(1, 1, True)), asdict(DrawnPrompt(2, 2))]
    assert list(batch["uid"]) == sorted(batch["uid"])


def test_without_a_plan_verls_rows_are_numbered(monkeypatch: pytest.MonkeyPatch):
    made = trainer()
    made.schedule = None
    made.settings = SimpleNamespace(failures=SimpleNamespace(share=0.0))  # type: ignore[assignment]
    rows = iter("ab")
    monkeypatch.setattr(
        PPOTrainer, "_fetch_one_gen_batch", lambda self: prompt_batch([{"extra_info": {"id": next(rows)}}], [0])
    )
    batches = [made._fetch_one_gen_batch() for _ in range(2)]
    assert [next(iter(batch["extra_info"]))["id"] for batch in batches] == ["a", "b"]
    assert [next(iter(batch[DRAWN])) for batch in batches] == [asdict(DrawnPrompt(0)), asdict(DrawnPrompt(1))]


def test_order_memory_and_stage_are_read_from_the_samples(monkeypatch: pytest.MonkeyPatch):
    """As after a restart, when nothing is left of what the trainer submitted."""
    made = trainer()
    drawn = {"b": DrawnPrompt(7, 3), "a": DrawnPrompt(5, 2), "c": DrawnPrompt(6, 2, memory=True)}
    monkeypatch.setattr(
        module, "fetch", lambda batch, field, keys: {field: [asdict(drawn[key.split("_")[0]]) for key in keys]}
    )
    keys = ["b_0_0", "a_1_0", "c_0_0", "a_0_0", "b_1_0", "c_1_0"]
    versions = [(1, 1), (0, 1), (1, 1), (1, 1), (1, 1), (1, 1)]
    tags = [{"seq_len": 3, "min_global_steps": first, "max_global_steps": last} for first, last in versions]
    ordered: list[list[str]] = []

    def balanced(self: Any, batch: KVBatchMeta, *_: Any) -> KVBatchMeta:
        ordered.append(list(batch.keys))
        return batch

    monkeypatch.setattr(PPOTrainerColocateAsync, "_balance_batch", balanced)
    monkeypatch.setattr(SkillCreditColocateTrainer, "_ranks", 1)
    monkeypatch.setattr(SkillCreditColocateTrainer, "_memory_flags", lambda self, batch: [False] * len(batch.keys))
    metrics: dict[str, Any] = {}
    made._balance_batch(KVBatchMeta(keys=keys, tags=tags, partition_id="train"), metrics)
    assert ordered == [["a_0_0", "a_1_0", "c_0_0", "c_1_0", "b_0_0", "b_1_0"]]
    assert made._memory_prompts == {"c"}
    assert made._plan_step == 3
    assert metrics == {
        "async/stale_groups": 1.0, "async/continued_samples": 1.0, "async/earlier_stage_groups": 2.0
    }  # fmt: skip


@pytest.mark.parametrize(("under_way", "drawn"), [(0, [4]), (4, [4]), (6, [2]), (8, []), (9, [])])
def test_no_prompts_are_drawn_that_no_step_is_left_for(
    monkeypatch: pytest.MonkeyPatch, under_way: int, drawn: list[int]
):
    made, submitted = trainer(), list[int]()
    made.total_training_steps = 3  # steps 2 and 3 are left
    made.config = OmegaConf.create({"data": {"train_batch_size": 4}})
    monkeypatch.setattr(module, "_count_tq_prompt_groups", lambda: under_way)
    monkeypatch.setattr(PPOTrainer, "_add_batch_to_generate", lambda self: submitted.append(4))
    monkeypatch.setattr(PPOTrainer, "_add_prompts_to_generate", lambda self, count: submitted.append(count))
    assert made.prepare_step() == {}
    assert submitted == drawn


@pytest.mark.parametrize(("step", "restored", "drawn"), [(1, 0, [8]), (2, 8, []), (3, 4, []), (3, 0, [4]), (4, 0, [])])
def test_no_more_is_drawn_ahead_than_steps_are_left_for(
    monkeypatch: pytest.MonkeyPatch, step: int, restored: int, drawn: list[int]
):
    """Of three steps, two batches ahead; after a restart some prompts are under way."""
    made, submitted = trainer(), list[int]()
    made.total_training_steps, made.global_steps, made._restored_tq_prompt_count = 3, step, restored
    made.config = OmegaConf.create(
        {"data": {"train_batch_size": 4, "gen_batch_size": 1}, "skip": {"rollout_tq": {"enable": False}}}
    )
    monkeypatch.setattr(PPOTrainer, "_add_prompts_to_generate", lambda self, count: submitted.append(count))
    made._add_async_warmup_batches(2)
    assert submitted == drawn


def test_a_restart_draws_what_comes_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def at(step: int) -> StepPrompts:
        return StepPrompts([step, step + 4], [False, False])

    first, second = trainer(at), trainer(at)
    for made in (first, second):
        made.config = OmegaConf.create(
            {"trainer": {"default_local_dir": str(tmp_path), "resume_mode": "auto", "resume_from_path": None}}
        )
    monkeypatch.setattr(step.SkillCreditHooks, "_save_checkpoint", lambda self: None)
    monkeypatch.setattr(step.SkillCreditHooks, "_load_checkpoint", lambda self: None)
    monkeypatch.setattr(tq, "kv_list", lambda partition: {})
    for _ in range(3):
        first._fetch_one_gen_batch()
    first._save_checkpoint()
    second._load_checkpoint()
    batch = second._fetch_one_gen_batch()
    assert batch["dummy_tensor"].flatten().tolist() == [6]
    assert list(batch[DRAWN]) == [asdict(DrawnPrompt(3, 2))]


def test_a_restart_clears_the_samples_that_its_checkpoints_step_was_trained_on(monkeypatch: pytest.MonkeyPatch):
    made, cleared = trainer(), list[list[str]]()
    made.config = OmegaConf.create(
        {"trainer": {"default_local_dir": "nowhere", "resume_mode": "auto", "resume_from_path": None}}
    )
    keys: dict[str, Any] = {key: {} for key in ("a_0_0", "a_1_0", "b", "b_0_0", "c")}
    monkeypatch.setattr(step.SkillCreditHooks, "_load_checkpoint", lambda self: None)
    monkeypatch.setattr(tq, "kv_list", lambda partition: {partition: keys})
    monkeypatch.setattr(tq, "kv_clear", lambda keys, partition_id: cleared.append(keys))
    made._load_checkpoint()
    assert cleared == [["a_0_0", "a_1_0"]]


def test_sigterm_saves_a_checkpoint_before_the_engines_continue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    made, events = trainer(), list[str]()
    made.total_training_steps = 3
    made.run_directory = RunDirectory.prepare(str(tmp_path), "quickstart", "r")
    (made.run_directory.path / FILE).touch()
    monkeypatch.setattr(PPOTrainerColocateAsync, "on_step_end", lambda self: events.append("engines go on"))
    monkeypatch.setattr(SkillCreditColocateTrainer, "_save_checkpoint", lambda self: events.append("save"))
    made.on_step_end()
    assert events == ["save", "engines go on"]
    assert made.total_training_steps == made.global_steps == 2  # verl's loop ends
    assert [event["step"] for event in made.run_directory.events() if event["event"] == "stop"] == [2]
