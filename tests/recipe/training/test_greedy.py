"""A second, greedy pass of verl's validation over each prompt."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.records.run_directory import RunDirectory
from recipe.settings import read_settings
from recipe.training.protector import Protector
from recipe.training.schedule import make_plan
from recipe.training.step_samples import GreedyPrompts, greedy_metrics, sampling_of
from recipe.training.trainer import SkillCreditTrainer
from tests.composing import composed
from tests.typed_settings import settings

SAMPLED = {"temperature": 0.7, "top_p": 0.9, "top_k": 50, "logprobs": False}
FOUND = {"skill/sql/accuracy": 0.25, "skill/mean/accuracy": 0.25, "skill/sql/standard_error": 0.1, "val-core/x": 1.0}


def test_a_marked_row_is_answered_by_the_most_likely_tokens_and_others_as_they_were():
    row: dict[str, Any] = {"greedy": True, "session_id": 0}
    assert sampling_of(SAMPLED, row) == {"temperature": 0, "top_p": 1.0, "top_k": -1, "logprobs": False}
    assert row == {"session_id": 0}  # agents get the fields of the data row
    assert sampling_of(SAMPLED, row) == SAMPLED
    assert SAMPLED["temperature"] == 0.7


def test_each_prompt_has_one_answer_whatever_the_validation_samples():
    batches: list[dict[str, Any]] = [{"raw_prompt": ["a", "b"], "uid": [1, 2]}, {"raw_prompt": ["c"]}]
    first, second = GreedyPrompts(batches)
    assert first["__rollout_n__"].tolist() == [1, 1]
    assert second["greedy"].tolist() == [True]
    assert first["uid"] == [1, 2]
    assert batches[1] == {"raw_prompt": ["c"]}


def test_only_the_accuracies_are_taken_over():
    assert greedy_metrics(FOUND) == {"skill/sql/greedy_accuracy": 0.25, "skill/mean/greedy_accuracy": 0.25}


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Answers per prompt that each pass of a validation requests (0: the configured number).

    A greedy pass finds an accuracy of 0.75, a sampled one of 0.25.
    """
    found: list[int] = []
    monkeypatch.setattr(SkillCreditTrainer, "_require_living", lambda self: None)

    def validate(self: SkillCreditTrainer) -> dict[str, float]:
        (batch,) = self.val_dataloader
        found.append(int(np.sum(batch.get("__rollout_n__", 0))))
        return FOUND | ({"skill/sql/accuracy": 0.75} if "greedy" in batch else {})

    monkeypatch.setattr(PPOTrainerSync, "_validate", validate)
    return found


def validated(folder: Path, temperature: float, *words: str) -> dict[str, float]:
    trainer = SkillCreditTrainer.__new__(SkillCreditTrainer)
    trainer.config = composed(
        "experiment=quickstart", f"actor_rollout_ref.rollout.val_kwargs.temperature={temperature}", *words
    )
    trainer.settings = read_settings(trainer.config)
    trainer.run_directory = RunDirectory.prepare(str(folder), "quickstart", "r")
    trainer.protector = Protector(trainer.settings)
    trainer.val_dataloader = [{"raw_prompt": ["a", "b", "c"]}]
    trainer.schedule = None
    trainer._start_step, trainer.global_steps = 0, 6
    metrics = trainer._validate()
    assert not isinstance(trainer.val_dataloader, GreedyPrompts)
    return metrics


def test_greedy_accuracy_stands_beside_the_sampled_one(tmp_path: Path, passes: list[int]):
    metrics = validated(tmp_path, 1.0)
    assert passes == [0, 3]
    assert (metrics["skill/sql/accuracy"], metrics["skill/sql/greedy_accuracy"]) == (0.25, 0.75)


def test_a_validation_that_is_greedy_itself_is_made_once(tmp_path: Path, passes: list[int]):
    metrics = validated(tmp_path, 0.0)
    assert passes == [0]
    assert metrics["skill/sql/greedy_accuracy"] == 0.25


def test_it_can_be_left_out(tmp_path: Path, passes: list[int]):
    metrics = validated(tmp_path, 1.0, "run.greedy_validation=false")
    assert passes == [0]
    assert "skill/sql/greedy_accuracy" not in metrics


@pytest.mark.parametrize(("step", "answers"), [(0, None), (2, [5, 2, 2]), (3, [2, 5, 2]), (4, [2, 5, 2]), (6, None)])
def test_between_start_and_end_other_skills_than_the_stages_own_get_fewer_answers(step: int, answers: list | None):
    """Stages of two steps train a, b and c; before the first step and after the last, all are measured fully."""
    trainer = SkillCreditTrainer.__new__(SkillCreditTrainer)
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"val_kwargs": {"n": 5}}}})
    trainer.settings = settings({"method": "off"}, stage_steps=2, val_n_of_others=2)
    trainer.schedule = SimpleNamespace(plan=make_plan(trainer.settings, 4))  # type: ignore[assignment]
    trainer.global_steps, trainer.total_training_steps = step, 6
    prompts = [{"raw_prompt": ["p", "q", "r"], "skill": ["a", "b", "c"]}]
    (batch,) = trainer._validated_prompts(prompts)
    assert (batch["__rollout_n__"].tolist() if answers else batch) == (answers or prompts[0])
    trainer.settings = settings({"method": "off"}, stage_steps=2)
    assert trainer._validated_prompts(prompts) is prompts


def test_greedy_answers_are_not_dumped_over_the_sampled_ones(monkeypatch: pytest.MonkeyPatch):
    dumped: list[str] = []
    monkeypatch.setattr(PPOTrainerSync, "_dump_generations", lambda self, *arguments: dumped.append(arguments[-1]))
    trainer = SkillCreditTrainer.__new__(SkillCreditTrainer)
    trainer.config = OmegaConf.create()
    loaders: tuple[Any, ...] = ([], GreedyPrompts([]))
    for loader in loaders:
        trainer.val_dataloader = loader
        trainer._dump_generations([], [], [], [], {}, dump_path="validation")
    assert dumped == ["validation", "validation/greedy"]
