from pathlib import Path

from omegaconf import OmegaConf

from recipe.settings import read_settings
from recipe.training.failure_buffer import FailureBuffer
from recipe.training.protector import Protector, checkpoint_folder, load_state, resumed_folder, save_state
from tests.composing import composed


def trainer(mode: str, named: str | None = None):
    return OmegaConf.create({"default_local_dir": "run/checkpoints", "resume_mode": mode, "resume_from_path": named})


def test_a_run_continues_from_its_own_checkpoint_or_from_the_one_that_is_named():
    assert resumed_folder(trainer("auto", "elsewhere"), 6) == Path("run/checkpoints/global_step_6")
    assert resumed_folder(trainer("resume_path", "elsewhere"), 6) == Path("elsewhere")
    assert checkpoint_folder(trainer("resume_path", "elsewhere"), 6) == Path("run/checkpoints/global_step_6")


def test_what_was_saved_is_taken_over_and_a_checkpoint_of_plain_verl_has_nothing(tmp_path):
    settings = read_settings(composed("experiment=quickstart", "projection=qp"))
    protector, failures = Protector(settings), FailureBuffer(4)
    protector.record_validation({"skill/sql/accuracy": 0.75})
    protector.record_training({"train_skill/sql/accuracy": 0.25})
    failures.record([("t/1", False)])
    save_state(tmp_path / "global_step_3", protector, failures)
    again, buffer = Protector(settings), FailureBuffer(4)
    load_state(tmp_path / "global_step_3", again, buffer)
    assert again.state() == protector.state()
    assert buffer.draw(4) == ["t/1"]
    fresh = Protector(settings)
    load_state(tmp_path, fresh, buffer)
    assert fresh.state() == Protector(settings).state()
    assert len(buffer) == 0
