"""Small real data and a small real model, made once a session by the project's own commands."""

from pathlib import Path

import pytest
from hypothesis import settings

# A machine that is busy with other things fails no law.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def tiny_suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the micro suite's files (a few rows a skill) and ``initial_model``."""
    from data_prep.micro import model, suite

    folder = tmp_path_factory.mktemp("micro")
    suite.make(folder, seed=0, limit=8, demonstration_count=32)
    model.main(["--out", str(folder / "initial_model")])
    return folder


@pytest.fixture
def tiny_arguments(tiny_suite: Path, tmp_path: Path) -> list[str]:
    """Arguments of a quickstart on the tiny suite whose run directories are in the test's own folder."""
    return [
        "experiment=quickstart",
        f"data.train_files={tiny_suite}/train.parquet",
        f"data.val_files={tiny_suite}/val.parquet",
        f"actor_rollout_ref.model.path={tiny_suite}/initial_model",
        f"run.root={tmp_path}/outputs",
        "run.name=r",
    ]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hugging Face's cache in the test's own folder, without a network."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"
