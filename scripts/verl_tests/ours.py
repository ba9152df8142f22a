"""A plug-in of pytest that puts our classes in place of verl's in its process, and notes which functions of ours ran.

A file that VERL_TESTS_CALLED names gets them, a line each. Without it nothing is replaced: verl's tests on verl's code.
verl's tests make objects without their constructors; the classes below give ours what it would have set.
"""

import importlib
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(f"{PROJECT / name}{os.sep}" for name in ("recipe", "workers", "rewards"))
_called: set[str] = set()


def pytest_configure(config: pytest.Config) -> None:
    """Replace verl's names before its tests import them."""
    if not os.environ.get("VERL_TESTS_CALLED"):
        return
    for name, ours in replacements().items():
        module, attribute = name.rsplit(".", 1)
        setattr(importlib.import_module(module), attribute, ours)
    sys.setprofile(_note)
    threading.setprofile(_note)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write which functions of ours ran."""
    if path := os.environ.get("VERL_TESTS_CALLED"):
        sys.setprofile(None)
        Path(path).write_text("".join(f"{name}\n" for name in sorted(_called)))


def _note(frame: FrameType, event: str, argument: Any) -> None:
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(PACKAGES) and "<" not in code.co_qualname.split(".")[-1]:
        _called.add(f"{Path(code.co_filename).relative_to(PROJECT)}: {code.co_qualname}")


def replacements() -> dict[str, Any]:
    """Name of verl -> our class."""
    return _trainers() | _workers()


def _trainers() -> dict[str, Any]:
    from hydra import compose, initialize_config_module
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

    from recipe.records.run_directory import RunDirectory
    from recipe.settings import read_settings
    from recipe.training.asynchronous.hooks import ContinuingClient
    from recipe.training.asynchronous.trainer import SkillCreditSeparateTrainer
    from recipe.training.hooks.replay_buffers import Patience, WatchedAsyncReplayBuffer, WatchedReplayBuffer
    from recipe.training.hooks.step import SkillCreditHooks

    run = RunDirectory(tempfile.mkdtemp())
    with initialize_config_module("configs", version_base=None):
        config = compose("train", ["experiment=quickstart"])

    class Watched(WatchedReplayBuffer):
        """As the trainer builds it, for a constructor that verl's tests call."""

        _patience, _run = Patience(batch=64), run

        def __init__(self, *arguments: Any, **options: Any):
            super().__init__(*arguments, **options)
            self._begin()

    class WatchedAsync(Watched, WatchedAsyncReplayBuffer):
        pass

    class Built:
        """What the constructor of our trainers sets; the mode is that of the test."""

        settings, run_directory = read_settings(config), run
        MODE: Any = property(lambda self: vars(self)["trainer_mode"])

        def __init__(self, config: Any):
            super(SkillCreditHooks, self).__init__(config)  # type: ignore[misc]  # which come after this class

        def _require_trained_weights(self) -> None:
            """There are no engines to ask."""

    class Trainer(Built, SkillCreditHooks):
        @property
        def _own_buffers(self) -> dict[type, type]:
            return {ReplayBuffer: Watched, ReplayBufferAsync: WatchedAsync}

    class SeparateTrainer(Built, SkillCreditSeparateTrainer):
        pass

    versions = "verl.trainer.ppo.v1"
    return {
        f"{versions}.replay_buffer.ReplayBuffer": Watched,
        f"{versions}.replay_buffer.ReplayBufferAsync": WatchedAsync,
        f"{versions}.trainer_base.PPOTrainer": Trainer,
        f"{versions}.trainer_separate_async.PPOTrainerSeparateAsync": SeparateTrainer,
        "verl.workers.rollout.llm_server.FullyAsyncLLMServerClient": ContinuingClient,
    }


def _workers() -> dict[str, Any]:
    from workers.actor import SkillCreditActorRolloutRefWorker, SkillCreditTrainingWorker
    from workers.engines import PolicyEngine

    engines = "verl.workers.engine.fsdp.transformer_impl"
    return {
        "verl.workers.engine_workers.ActorRolloutRefWorker": SkillCreditActorRolloutRefWorker,
        "verl.workers.engine_workers.TrainingWorker": SkillCreditTrainingWorker,
        f"{engines}.FSDPEngine": PolicyEngine,
        f"{engines}.FSDPEngineWithLMHead": PolicyEngine,
    }
