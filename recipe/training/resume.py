"""What a checkpoint keeps beside verl's own state: peaks and solutions of the protector, and the failed prompts."""

import json
from pathlib import Path
from typing import Any

from recipe.records.run_directory import write_atomically
from recipe.training.failure_buffer import FailureBuffer
from recipe.training.protector import Protector

PROTECTOR_FILE = "protector.json"


def checkpoint_folder(trainer: Any, step: int) -> Path:
    """Where the checkpoint of a step is written. trainer: verl's configuration group of this name."""
    return Path(f"{trainer.default_local_dir}/global_step_{step}")


def resumed_folder(trainer: Any, step: int) -> Path:
    """The checkpoint that a run goes on from: the one that the configuration names, or its own of this step."""
    named = trainer.resume_from_path if trainer.resume_mode == "resume_path" else None
    return Path(named) if named else checkpoint_folder(trainer, step)


def save_state(folder: Path, protector: Protector, failures: FailureBuffer | None) -> None:
    """Write our state into a checkpoint's folder; failures: None where none are tried again."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / PROTECTOR_FILE, json.dumps(protector.state()))
    if failures is not None:
        failures.save(folder)


def load_state(folder: Path, protector: Protector, failures: FailureBuffer) -> None:
    """Take over what `save_state` wrote; a checkpoint without it (made by plain verl) leaves both as they are new."""
    failures.load(folder)
    if (folder / PROTECTOR_FILE).exists():
        protector.restore(json.loads((folder / PROTECTOR_FILE).read_text()))
