"""Small real data and a small real model, made once a session by the project's own commands."""

import gc
import os
import pickle
import signal
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import settings
from omegaconf import DictConfig, ListConfig, OmegaConf

# A machine that is busy with other things fails no law.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_configure() -> None:
    """Parse each YAML file once per process: Hydra spends half of its time on the same ones."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Of a suite in the background (nohup, &): programs that tests start and interrupt would ignore it, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    load, parsed = OmegaConf.load, dict[tuple[str, int], bytes]()

    def load_once(file_: str | Path | IO[Any]) -> DictConfig | ListConfig:
        if isinstance(file_, str | Path) or not hasattr(file_, "name"):
            return load(file_)  # Hydra opens its files before
        key = (file_.name, os.stat(file_.name).st_mtime_ns)
        if key not in parsed:
            parsed[key] = pickle.dumps(load(file_))
        config: DictConfig | ListConfig = pickle.loads(parsed[key])  # noqa: S301  (our own bytes, of this process)
        return config

    OmegaConf.load = staticmethod(load_once)  # type: ignore[method-assign]
    gc.disable()  # until all modules are imported


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later garbage collection: millions of objects that live to the end."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Python's last collection frees everything: bindings that find objects left print what leaked."""
    gc.unfreeze()


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
