"""After a kill between a checkpoint and that step's metrics, the next start writes its validation's metrics."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.health.alerts import Alerts
from recipe.records.run_directory import RunDirectory
from recipe.settings import read_settings
from recipe.training.protector import Protector
from recipe.training.trainer import SkillCreditTrainer
from tests.composing import composed

pytestmark = pytest.mark.slow

WORDS = (
    "experiment=paper_b",
    "run.share_first_validation=false",
    "protocol.stage_steps=2",
    "protocol.skill_sequence=[write,sql]",
)


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SkillCreditTrainer:
    """The state at the start of a process; every validation finds the same accuracies."""
    accuracies = {"skill/write/accuracy": 0.5, "skill/sql/accuracy": 0.25, "skill/mean/accuracy": 0.375}
    monkeypatch.setattr(PPOTrainerSync, "_validate", lambda self: dict(accuracies))
    monkeypatch.setattr(SkillCreditTrainer, "_require_living", lambda self: None)
    trainer = SkillCreditTrainer.__new__(SkillCreditTrainer)
    trainer.settings = read_settings(composed(*WORDS))
    trainer.run_directory = RunDirectory.prepare(str(tmp_path), "paper_b", "r")
    trainer.run_directory.write_config(composed(*WORDS))
    trainer.protector = Protector(trainer.settings)
    sampled = {"rollout": {"val_kwargs": {"temperature": 1.0}}}
    trainer.config = OmegaConf.create({"trainer": {"val_only": False, "test_freq": 2}, "actor_rollout_ref": sampled})
    trainer.alerts = Alerts(trainer.run_directory, trainer.config)
    trainer.val_dataloader = [{"raw_prompt": ["a", "b"]}]
    return trainer


def measured(trainer: SkillCreditTrainer, begins_at: int, step: int) -> list[int]:
    """Steps in the run's metrics after a validation."""
    trainer._start_step, trainer.global_steps = begins_at, step
    trainer._validate()
    return [int(row["step"]) for row in trainer.run_directory.metrics()]


def test_it_is_the_row_of_step_zero_in_a_new_run(trainer: SkillCreditTrainer):
    assert measured(trainer, 0, 0) == [0]


def test_it_takes_the_place_of_the_row_that_was_not_written(trainer: SkillCreditTrainer):
    measured(trainer, 0, 0)
    assert measured(trainer, 2, 2) == [0, 2]
    assert trainer.run_directory.metrics()[-1]["skill/new_skill"] == 0.5  # the end of a stage


def test_it_does_not_replace_a_row_that_was(trainer: SkillCreditTrainer):
    trainer.run_directory.log_metrics(2, {"critic/score/mean": 0.75})
    assert measured(trainer, 2, 2) == [2]
    (row,) = trainer.run_directory.metrics()
    assert row["critic/score/mean"] == 0.75


def test_one_that_only_a_restart_makes_decides_nothing(trainer: SkillCreditTrainer):
    """An uninterrupted run would not have this validation."""
    measured(trainer, 3, 3)
    assert not trainer.protector.validated.best
    measured(trainer, 4, 4)
    assert trainer.protector.validated.best["write"] == 0.5


def test_one_that_belongs_to_a_step_is_written_with_it(trainer: SkillCreditTrainer):
    assert measured(trainer, 0, 2) == []
