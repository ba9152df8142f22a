"""Ray for one run: start it or join it, with the environment that our workers need."""

import fcntl
import os
import shlex
import sys
from pathlib import Path
from typing import IO, Any

import ray
from omegaconf import DictConfig, OmegaConf
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from recipe.records.run_directory import RunDirectory
from recipe.runtime.environment import forwarded


class ClusterError(RuntimeError):
    """Ray could not be started or joined, or has too little for this run."""


def start_ray(config: DictConfig, run: RunDirectory) -> None:
    """Start a Ray of this run's own, or join the one that ``ray_kwargs.ray_init.address`` or RAY_ADDRESS names.

    Raises:
        ClusterError: Ray cannot be reached, has fewer accelerators than the run needs, or another run has started a Ray
            of its own on this machine.
    """
    options: dict[str, Any] = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)  # type: ignore[assignment]
    options["runtime_env"] = runtime_environment(config, run, sys.executable)
    options["address"] = options.get("address") or os.environ.get("RAY_ADDRESS") or "local"
    if options["address"] == "local":
        claim_machine(f"/tmp/verl-skillcredit-{os.getuid()}.lock")
    else:
        # A running cluster has the resources that it has.
        for name in ("num_cpus", "num_gpus", "include_dashboard"):
            options.pop(name, None)
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        # Ray would hand out no logical GPU at all.
        del os.environ["CUDA_VISIBLE_DEVICES"]
    try:
        ray.init(**options, log_to_driver=False, configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise ClusterError(f"Ray at address={options['address']!r} cannot be used: {error}") from error
    require_accelerators(config)


def runtime_environment(config: DictConfig, run: RunDirectory, python: str) -> dict[str, Any]:
    """Ray's runtime environment of a run: verl's, ours, and over them what ``ray_kwargs.ray_init.runtime_env`` sets."""
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    chosen = OmegaConf.to_container(config.ray_kwargs.ray_init.get("runtime_env") or OmegaConf.create(), resolve=True)
    assert isinstance(chosen, dict)
    environment = OmegaConf.merge(
        get_ppo_ray_runtime_env(config),
        {"env_vars": run_environment(run)},
        interpreter(python),
        # verl's configuration has a null for each key that nobody chose.
        {key: value for key, value in chosen.items() if value is not None},
    )
    return OmegaConf.to_container(environment)  # type: ignore[return-value]


def interpreter(path: str) -> dict[str, str]:
    """The part of Ray's runtime environment that names the interpreter: only where its path has blanks or the like.

    Ray hands the path to a shell as it is, so that its workers would never start.
    """
    quoted = shlex.quote(path)
    return {} if quoted == path else {"py_executable": quoted}


_claims: list[IO[str]] = []


def claim_machine(path: str) -> None:
    """Hold a lock until this process ends, so that one run at a time has a Ray of its own on this machine.

    verl 0.9.1 names the sockets for the policy's weights by Ray's job number, which is 1 in every new Ray: two runs
    would wait for each other's weights for ever.

    Raises:
        ClusterError: another run holds it.
    """
    # Not closed and not removed: the kernel lets go of the lock when this process ends, however it does.
    file = open(path, "a+")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise ClusterError(
            f"another run (process {holder}) has started a Ray of its own on this machine, and verl's sockets of the "
            "two would collide. Wait for its end, or have both share one Ray: ray start --head, then RAY_ADDRESS=auto."
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    _claims.append(file)


def run_environment(run: RunDirectory) -> dict[str, str]:
    """Environment variables that every Ray worker of this run gets."""
    return forwarded(os.environ) | {
        "TRANSFER_QUEUE_ENABLE": "1",
        # Nodes where the distribution is not installed have our code as the job's working directory only.
        "VERL_USE_EXTERNAL_MODULES": "recipe.training.register",
        "WANDB_RUN_ID": run.wandb_id(),
        "WANDB_RESUME": "allow",
        "WANDB_DIR": str(run.path),
        "WANDB_SILENT": "true",
    }


def require_accelerators(config: DictConfig) -> None:
    """Refuse to go on where verl would wait for resources that never come."""
    needed = config.trainer.nnodes * config.trainer.n_gpus_per_node
    present = ray.cluster_resources().get("GPU", 0)
    if present < needed:
        raise ClusterError(
            f"the Ray cluster has {present:g} GPU, this run needs {needed} (trainer.nnodes x trainer.n_gpus_per_node). "
            "Lower these keys, add nodes, or unset RAY_ADDRESS to start a Ray of the run's own."
        )


def on_this_node(actor_class: Any) -> Any:
    """The same actor class, placed on the driver's node: run directories are on the disk where the user started.

    It asks for no processor: KubeRay's heads have none to give (``num-cpus: "0"``), and it would wait for ever.
    """
    node = ray.get_runtime_context().get_node_id()
    return actor_class.options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))


def session_logs() -> Path | None:
    """The folder of this Ray session's log files on this node."""
    node = getattr(ray._private.worker, "_global_node", None)
    return Path(node.get_logs_dir_path()) if node else None
