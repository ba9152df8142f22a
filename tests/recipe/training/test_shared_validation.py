"""Runs of an experiment that begin alike validate once before training. Made: verl's validation."""

import copy
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.health.alerts import Alerts
from recipe.records.run_directory import RunDirectory
from recipe.settings import read_settings
from recipe.training.hooks.shared_validation import OWN_CODE, shared_file
from recipe.training.protector import Protector
from recipe.training.trainer import SkillCreditTrainer
from tests.composing import composed

pytestmark = pytest.mark.slow

COMMIT = "0123456789ab"
START = {"commit": COMMIT, "processor": "AMD EPYC, AVX2, threads: 1"}
THIRD = 1 / 3


@cache
def of_arm(*arm: str) -> DictConfig:
    return composed("experiment=paper_b", "platform=cpu", *arm)


def place(config: DictConfig, folder: Path, rows: str = "rows", weights: str = "w") -> None:
    """Write validation rows and a model, if `weights` are not empty, and name them."""
    config.data.val_files, config.actor_rollout_ref.model.path = str(folder / "val.parquet"), str(folder / "model")
    (folder / "val.parquet").write_text(rows)
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "model.safetensors").write_text(weights)
    if not weights:
        (folder / "model" / "model.safetensors").unlink()


class Study:
    """Starts of runs in one folder; `validations` has the step of each validation that was made."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder, self.commit = folder, COMMIT
        self.found = {"skill/mean/accuracy": THIRD, "skill/write/accuracy": THIRD, "skill/masked_share": 0.0}
        self.validations: list[int] = []

        def validate(trainer: Any) -> dict[str, float]:
            self.validations.append(trainer.global_steps)
            return dict(self.found)

        monkeypatch.setattr(PPOTrainerSync, "_validate", validate)
        module = "recipe.training.hooks.shared_validation"
        monkeypatch.setattr(f"{module}.source_commit", lambda: self.commit)
        monkeypatch.setattr(SkillCreditTrainer, "_require_living", lambda self: None)
        monkeypatch.setattr("recipe.training.hooks.validation.update_report", lambda run: None)

    def start(self, name: str, *words: str, step: int = 0, **start: str) -> dict[str, float]:
        arm = [word for word in words if word.startswith("arm=")]
        config = copy.deepcopy(of_arm(*arm))
        place(config, self.folder)
        config.merge_with_dotlist([word for word in words if word not in arm])
        trainer: Any = SkillCreditTrainer.__new__(SkillCreditTrainer)
        trainer.config, trainer.settings, trainer.schedule = config, read_settings(config), None
        trainer.run_directory = RunDirectory.prepare(str(self.folder), "e", name)
        trainer.run_directory.write_config(config)
        trainer.run_directory.log_event("start", **START | start)
        trainer.protector, trainer.alerts = Protector(trainer.settings), Alerts(trainer.run_directory, config)
        trainer.val_dataloader = [{"raw_prompt": ["a", "b"]}]
        trainer._start_step = trainer.global_steps = step
        return trainer._validate()


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    return Study(tmp_path, monkeypatch)


@pytest.mark.parametrize("arm", ["closed_loop", "credit"])
def test_arms_of_a_seed_validate_once_before_training(study: Study, arm: str):
    measured = study.start("first")
    assert study.validations == [0, 0]  # sampled and greedy
    assert study.start("second", f"arm={arm}", "trainer.test_freq=4") == measured
    assert len(study.validations) == 2
    second = RunDirectory(study.folder / "e" / "second")
    assert [event["run"] for event in second.events() if event["event"] == "validation_shared"] == ["first"]
    (row,) = second.metrics()
    assert (row["step"], row["skill/mean/accuracy"]) == (0, THIRD)


def test_only_the_validation_before_training_is_shared_and_only_if_wanted(study: Study):
    study.start("first")
    study.start("second", step=8)
    study.start("third", "run.share_first_validation=false")
    assert study.validations == [0, 0, 8, 8, 0, 0]


@pytest.mark.parametrize("found", [{"skill/masked_share": 0.01}, {}])
def test_a_validation_with_masked_samples_or_without_verified_ones_is_not_shared(study: Study, found: dict[str, float]):
    complete, study.found = study.found, found
    study.start("first")
    study.found = complete
    assert study.start("second")["skill/masked_share"] == 0.0


def test_a_validation_of_a_source_that_has_changed_since_or_of_a_removed_run_is_not_taken(study: Study):
    study.commit = "ba9876543210"
    study.start("first")
    study.commit = COMMIT
    study.start("second")
    assert len(study.validations) == 4
    study.start("third")
    assert len(study.validations) == 4
    shutil.rmtree(study.folder / "e" / "second")
    study.start("fourth")
    assert len(study.validations) == 6


def file_of(folder: Path, *words: str, rows: str = "rows", weights: str = "w", **start: str) -> Path | None:
    """The shared file of a run with these words and start."""
    config = copy.deepcopy(of_arm(*[word for word in words if word.startswith("arm=")]))
    config.merge_with_dotlist([word for word in words if not word.startswith("arm=")])
    place(config, folder, rows, weights)
    run = RunDirectory.prepare(str(folder), "e", None)
    run.log_event("start", **START | start)
    return shared_file(config, run)


def test_what_decides_the_answers_or_their_verification_has_its_own_file(tmp_path: Path):
    files = [
        file_of(tmp_path, *words)
        for words in (
            [], ["data.seed=7"], ["actor_rollout_ref.rollout.val_kwargs.n=5"], ["run.precision=bfloat16"],
            ["data.max_response_length=32"], ["sandbox.timeout=3"], ["skills.names=[write,repair]"],
            ["run.greedy_validation=false"], ["reward.custom_reward_function.reward_kwargs.partial_credit=true"],
            ["actor_rollout_ref.model.lora_rank=4"], ["agents.max_turns=2"],
            ["actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16"],
        )
    ]  # fmt: skip
    starts = ({"weights": "other"}, {"commit": "ba9876543210"}, {"processor": "AMD EPYC"}, {"rows": "other rows"})
    files += [file_of(tmp_path, **start) for start in starts]
    assert None not in files
    assert len(set(files)) == len(files)
    assert file_of(tmp_path, "arm=rehearsal", "actor_rollout_ref.actor.optim.lr=1.0") == files[0]


def test_a_run_whose_answers_nothing_names_or_whose_samples_are_shown_has_none(tmp_path: Path):
    dirty = f"{COMMIT} with local changes"
    for start in ({"weights": ""}, {"commit": "unknown"}, {"commit": dirty}):
        assert file_of(tmp_path, **start) is None
    words = [f"{key}=mine" for key in OWN_CODE]
    words += ["reward.custom_reward_function.path=mine.py", "skills.by=function", "run.seeded_samples=false"]
    words += [
        "trainer.device=cuda",
        "trainer.v1.trainer_mode=skillcredit_colocate_async",
        "skip.rollout_tq.enable=true",
    ]
    words += ["trainer.logger=[console,wandb]", "trainer.validation_data_dir=dumps", "trainer.val_only=true"]
    words += ["skip.rollout_tq.enable=true"]
    assert [word for word in words if file_of(tmp_path, word) is not None] == []


def test_a_file_beside_the_weights_decides_too(tmp_path: Path):
    plain = file_of(tmp_path)
    (tmp_path / "model" / "special_tokens_map.json").write_text("{}")
    assert file_of(tmp_path) not in (None, plain)
