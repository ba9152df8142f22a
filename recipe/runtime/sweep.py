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
from recipe.records.versions import RecordsError
from recipe.settings import SettingsError

DERIVED = ("trainer.total_training_steps", "trainer.total_epochs")
PLACES = ("default_local_dir", "experiment_name", "project_name")
# How long a run waits for what does not come, and whether prompts are computed in parts: not what it trains.
PASSED_OVER = (
    "credit.patience",
    "actor_rollout_ref.nccl_timeout",
    "actor_rollout_ref.rollout.enable_chunked_prefill",
)


class JobFailed(RuntimeError):
    """A run of a multirun ended badly; Hydra goes on with the others and raises this when all are done."""


def in_multirun() -> bool:
    """Whether Hydra calls for one of several runs (``--multirun``)."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


def changed_settings(before: DictConfig, now: DictConfig) -> list[str]:
    """The keys, each with both values, in which a finished run differs from what is asked for; the first three.

    What a run's folder is called does not count, nor do the folders in which its files lay, nor what is derived from
    other keys when a run starts (``run``, and how many steps a protocol with stages has), nor how long it waits,
    nor whether prompts are computed in parts.
    """
    old, new = _flat(before), _flat(now)
    if "protocol.stage_steps" in new:
        new = {key: value for key, value in new.items() if key not in DERIVED}
    differing = [key for key in new if old.get(key) != new[key]]
    return [f"{key}: {old.get(key)}, now {new[key]}" for key in differing[:3]]


def _flat(config: DictConfig) -> dict[str, str]:
    """Each leaf under its dotted name, as text; of a path, what stands below the working directory."""
    home = f"{Path(os.environ.get('SKILLCREDIT_HOME', '.')).absolute()}/"
    leaves: dict[str, str] = {}

    def visit(name: str, value: object) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                visit(f"{name}.{key}" if name else str(key), each)
        else:
            leaves[name] = str(value).removeprefix(home)

    visit("", OmegaConf.to_container(config, resolve=True))
    return {
        key: value
        for key, value in leaves.items()
        if not key.startswith("run.") and key not in PASSED_OVER and key.rpartition(".")[2] not in PLACES
    }


def run_job(config: DictConfig, words: Sequence[str]) -> None:
    """Start ``recipe.train`` with these words and wait; a run that came to its end before is left alone.

    A process for each, because Ray, vLLM and the memory of a GPU then begin anew. config: composed from the words.

    Raises:
        SettingsError: the runs would share one folder.
        JobFailed: the run did, or it finished before with other settings.
    """
    if not OmegaConf.is_interpolation(config.run, "name"):
        raise SettingsError(
            "--multirun needs a name for each run that a later call finds again, made of what is swept: "
            "'run.name=${hydra:runtime.choices.arm}.s${data.seed}', for example"
        )
    name = str(config.run.name)
    run = RunDirectory(Path(os.environ.get("SKILLCREDIT_HOME", "."), config.run.root, config.run.experiment, name))
    if run.finished:
        try:
            changed = changed_settings(run.read_config(), config)
        except RecordsError as error:
            print(f"== {name}: {error}", file=sys.stderr, flush=True)
            raise JobFailed(f"{name} finished before, and its records cannot be read") from error
        if changed:
            told = f"{name} finished before with other settings ({', '.join(changed)})"
            print(f"== {told}: choose another run.experiment, or remove {run.path}", file=sys.stderr, flush=True)
            raise JobFailed(told)
        print(f"== {name}: finished before", flush=True)
        return
    print(f"== {name}", flush=True)
    own = [word for word in words if not word.startswith("run.name=")]
    done = subprocess.run([sys.executable, "-m", "recipe.train", *own, f"run.name={name}"], check=False)
    if done.returncode:
        print(f"== {name} failed: see {run.path}/logs", file=sys.stderr, flush=True)
        raise JobFailed(f"{name} ended with exit status {done.returncode}")
