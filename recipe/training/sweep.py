"""The runs of a Hydra multirun, one after the other: each a process of its own, each done once."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from recipe.records.run_directory import RunDirectory
from recipe.training.settings import SettingsError


class JobFailed(RuntimeError):
    """A run of a multirun ended badly; Hydra goes on with the others and raises this when all are done."""


def in_multirun() -> bool:
    """Whether Hydra calls for one of several runs (``--multirun``)."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


def run_job(config: DictConfig, words: Sequence[str]) -> None:
    """Start ``recipe.train`` with these words and wait; a run that came to its end before is left alone.

    A process for each, because Ray, vLLM and the memory of a GPU then begin anew. config: composed from the words.

    Raises:
        SettingsError: the runs would share one folder.
        JobFailed: the run did.
    """
    if not OmegaConf.is_interpolation(config.run, "name"):
        raise SettingsError(
            "--multirun needs a name for each run that a later call finds again, made of what is swept: "
            "'run.name=${hydra:runtime.choices.arm}.s${data.seed}', for example"
        )
    name = str(config.run.name)
    run = RunDirectory(Path(os.environ.get("SKILLCREDIT_HOME", "."), config.run.root, config.run.experiment, name))
    if run.finished:
        print(f"== {name}: finished before", flush=True)
        return
    print(f"== {name}", flush=True)
    own = [word for word in words if not word.startswith("run.name=")]
    done = subprocess.run([sys.executable, "-m", "recipe.train", *own, f"run.name={name}"], check=False)
    if done.returncode:
        print(f"== {name} failed: see {run.path}/logs", file=sys.stderr, flush=True)
        raise JobFailed(f"{name} ended with exit status {done.returncode}")
