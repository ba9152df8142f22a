"""Runs of a Hydra multirun, one after the other, each in a separate process; finished runs are skipped."""

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
from recipe.runtime import TERMINATED
from recipe.runtime.stop_request import passing_sigterm_on
from recipe.settings import SettingsError

DERIVED = ("trainer.total_training_steps", "trainer.total_epochs")
PLACES = ("default_local_dir", "experiment_name", "project_name")
# Time limits, how long gathered weights are kept, how they reach the engine, whether prompts are prefilled in chunks,
# and how often workers collect garbage: these do not change the training result.
IGNORED = (
    "credit.patience",
    "actor_rollout_ref.nccl_timeout",
    "trainer.log_val_generations",
    "actor_rollout_ref.actor.fsdp_config.reshard_after_forward",
    "actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls",
    "actor_rollout_ref.rollout.enable_chunked_prefill",
    "ray_kwargs.ray_init.runtime_env.worker_process_setup_hook",
)
# Of engines apart from the trainer's accelerators: other runs do not read these.
ENGINES_APART = (
    "actor_rollout_ref.rollout.nnodes",
    "actor_rollout_ref.rollout.checkpoint_engine.",
    "trainer.v1.separate_async.",
    "trainer.v1.skillcredit_separate_async.",
)


class JobFailed(RuntimeError):
    """A run of a multirun failed; Hydra continues with the others and raises this when all are done."""


def in_multirun() -> bool:
    """Whether this is one of the runs of a Hydra multirun (``--multirun``)."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


def changed_settings(before: DictConfig, now: DictConfig) -> list[str]:
    """The first three keys, each with both values, in which a finished run differs from the requested one.

    Ignored are the names of the run and of its folders, keys derived from others when a run starts (``run``, and the
    number of steps of a protocol with stages), ``IGNORED``, and ``ENGINES_APART`` where the requested run has none.
    """
    old, new = _flat(before), _flat(now)
    if "protocol.stage_steps" in new:
        new = {key: value for key, value in new.items() if key not in DERIVED}
    if new.get("actor_rollout_ref.hybrid_engine") == "True":
        new = {key: value for key, value in new.items() if not key.startswith(ENGINES_APART)}
    differing = [key for key in new if old.get(key) != new[key]]
    return [f"{key}: {old.get(key)}, now {new[key]}" for key in differing[:3]]


def _flat(config: DictConfig) -> dict[str, str]:
    """Each leaf under its dotted name, as text; a path is made relative to the working directory."""
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
        if not key.startswith("run.") and key not in IGNORED and key.rpartition(".")[2] not in PLACES
    }


def run_job(config: DictConfig, overrides: Sequence[str]) -> None:
    """Start ``recipe.train`` with these overrides and wait for it; skip a run that has finished before.

    A separate process per run gives it a fresh Ray, vLLM and GPU memory. config: composed from the overrides.

    Raises:
        SettingsError: the runs would share one folder.
        JobFailed: the run failed, or finished before with other settings.
    """
    if not OmegaConf.is_interpolation(config.run, "name"):
        raise SettingsError(
            "--multirun needs a reproducible run.name, built from the swept keys, for example "
            "'run.name=${hydra:runtime.choices.arm}.s${data.seed}'"
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
            reason = f"{name} finished before with other settings ({', '.join(changed)})"
            print(f"== {reason}: choose another run.experiment, or remove {run.path}", file=sys.stderr, flush=True)
            raise JobFailed(reason)
        print(f"== {name}: finished before", flush=True)
        return
    print(f"== {name}", flush=True)
    others = [override for override in overrides if not override.startswith("run.name=")]
    training = subprocess.Popen([sys.executable, "-m", "recipe.train", *others, f"run.name={name}"])
    with passing_sigterm_on(training) as asked:
        status = training.wait()
    if asked or status == TERMINATED:
        sys.exit(TERMINATED)  # stopped on request: even if this run finished, start no further one
    if status:
        logs = run.path / "logs"  # a start that was refused leaves none
        print(f"== {name} failed: see {logs if logs.is_dir() else 'above'}", file=sys.stderr, flush=True)
        raise JobFailed(f"{name} ended with exit status {status}")
