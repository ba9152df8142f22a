"""A step whose checkpoint was saved has its row of metrics, its samples and its validation, whenever the run then dies.

Real: our trainer's hooks and records. Made: verl's trainer behind them, whose metrics and checkpoints are dictionaries.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.records.run_directory import RunDirectory, read_jsonl
from recipe.training.hooks import records
from recipe.training.trainer import SkillCreditTrainer

REWARD, GRADIENT, ACCURACY = "critic/score/mean", "actor/grad_norm", "skill/mean/accuracy"


@pytest.fixture(autouse=True)
def verl(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(self: Any, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], **_: Any) -> None:
        self._rollout_moe_lb_metrics_accumulator.append(1)
        metrics.update({REWARD: 0.1 * batch, "timing_s/step": timing_raw["step"], "note": "no number"})

    def train(self: Any, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        metrics[GRADIENT] = 7.0
        timing_raw.update(gen=2.0, update_actor=1.0)
        return self.global_steps

    monkeypatch.setattr(PPOTrainer, "_compute_metrics", compute)
    monkeypatch.setattr(PPOTrainer, "step", train)
    monkeypatch.setattr(PPOTrainer, "_save_checkpoint", lambda self: None)
    monkeypatch.setattr(PPOTrainer, "_load_checkpoint", lambda self: None)
    monkeypatch.setattr(PPOTrainerSync, "_validate", lambda self: {ACCURACY: 0.01 * self.global_steps})
    monkeypatch.setattr(SkillCreditTrainer, "_require_living", lambda self: None)
    monkeypatch.setattr(records, "readable_samples", lambda batch, count, tokenizer: [{"response": f"of {batch}"}])
    monkeypatch.setattr(records, "stage_metrics", lambda *_: {})
    for module in (records, "recipe.training.hooks.validation"):
        where = module if isinstance(module, str) else module.__name__
        monkeypatch.setattr(f"{where}.update_report", lambda run: None)


def start(folder: Path, at: int, test_freq: int = 0, total: int = 9) -> Any:
    """A process's trainer that has loaded the checkpoint of step `at`."""
    made: Any = SkillCreditTrainer.__new__(SkillCreditTrainer)
    made.run_directory = RunDirectory.prepare(str(folder), "e", "r")
    saved = str(made.run_directory.checkpoints)
    trainer = {"default_local_dir": saved, "resume_mode": "auto", "test_freq": test_freq, "val_only": False}
    sampling = {"rollout": {"val_kwargs": {"temperature": 0}}}
    made.config = OmegaConf.create({"trainer": trainer, "actor_rollout_ref": sampling})
    run = SimpleNamespace(generations_per_step=1, greedy_validation=False)
    made.settings = SimpleNamespace(run=run, protocol=SimpleNamespace(val_n_of_others=None))
    made.protector = SimpleNamespace(forgotten=lambda metrics: {}, record_validation=lambda metrics: None)
    made.alerts, made.tokenizer, made.val_dataloader = SimpleNamespace(check=lambda row: None), None, []
    made.logger = SimpleNamespace(logged=[], log=lambda data, step: made.logger.logged.append(step))
    made._rollout_moe_lb_metrics_accumulator, made.steps_per_epoch, made.total_training_steps = [], 4, total
    made.global_steps = made._start_step = at
    records.RecordHooks._load_checkpoint(made)
    return made


def train_and_die(folder: Path, step: int) -> Any:
    """Train a step and save its checkpoint, no more."""
    made = start(folder, at=step - 1)
    made.global_steps, made.timing_raw = step, {}
    made.step({}, made.timing_raw)
    records.RecordHooks._save_checkpoint(made)
    return made


def begin(made: Any) -> None:
    """As verl's fit begins."""
    made.global_steps += 1
    made.on_train_begin()


def rows(made: Any) -> list[dict[str, float]]:
    found = read_jsonl(made.run_directory.path / "metrics.jsonl")
    return [{key: value for key, value in row.items() if key != "time"} for row in found]


def test_the_next_start_records_the_metrics_of_a_step_that_has_only_a_checkpoint(tmp_path: Path):
    died = train_and_die(tmp_path, step=2)
    assert rows(died) == []
    assert (died.run_directory.path / "generations" / "train_000002.jsonl").read_text() == '{"response": "of 2"}\n'
    again = start(tmp_path, at=2)
    begin(again)
    assert rows(again) == [{"step": 2, GRADIENT: 7.0, REWARD: 0.2, "timing_s/step": 3.0}]
    assert (again.logger.logged, again.global_steps) == ([2], 3)
    begin(start(tmp_path, at=2))
    assert len(rows(again)) == 1


def test_a_checkpoints_metrics_are_computed_beside_those_of_the_step(tmp_path: Path):
    assert train_and_die(tmp_path, step=2)._rollout_moe_lb_metrics_accumulator == []


@pytest.mark.parametrize(("test_freq", "total", "owed"), [(2, 9, True), (3, 9, False), (3, 2, True), (0, 2, False)])
def test_it_validates_where_the_dead_run_would_have(tmp_path: Path, test_freq: int, total: int, owed: bool):
    train_and_die(tmp_path, step=2)
    again = start(tmp_path, at=2, test_freq=test_freq, total=total)
    begin(again)
    (row,) = rows(again)
    assert (row[REWARD], row.get(ACCURACY)) == (0.2, 0.02 if owed else None)


def test_the_validation_that_a_start_makes_anyway_joins_the_step(tmp_path: Path):
    train_and_die(tmp_path, step=2)
    again = start(tmp_path, at=2, test_freq=2)
    again._validate()
    begin(again)
    (row,) = rows(again)
    assert (row[REWARD], row[ACCURACY]) == (0.2, 0.02)


def test_another_runs_checkpoint_brings_no_row(tmp_path: Path):
    train_and_die(tmp_path / "other", step=2)
    new = start(tmp_path, at=2)
    begin(new)
    assert rows(new) == []
