"""Ray session of a run: start or join Ray, with the environment that our workers need."""

import fcntl
import os
import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import ray
from omegaconf import DictConfig, OmegaConf
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from recipe.records.run_directory import RunDirectory
from recipe.runtime import fork_server
from recipe.runtime.environment import forwarded
from recipe.runtime.node_packages import differences, installed, on_nodes
from recipe.settings import engines_apart
from workers.cpu.processor import threads_per_rank
from workers.ranks import RUN_FOLDER

# Of workers: verl's trainer, agent loops, actor and vLLM's server, and ours.
IMPORTED_ONCE = (
    "ray._private.workers.default_worker",
    "peft",
    "verl.experimental.agent_loop.agent_loop",
    "verl.workers.rollout.vllm_rollout.vllm_async_server",
    "recipe.training.asynchronous.trainer",
    "workers.actor",
    "rewards.manager",
)


class ClusterError(RuntimeError):
    """Ray could not be started or joined, or has too few resources for this run."""


def ray_address(config: DictConfig) -> str:
    """The address of the cluster that the run joins; ``local`` if it starts its own Ray."""
    return config.ray_kwargs.ray_init.get("address") or os.environ.get("RAY_ADDRESS") or "local"


def claim_own_ray(config: DictConfig) -> None:
    """Before a run writes its first record: it may be under way already, in another process.

    Raises:
        ClusterError: the run would start its own Ray, and another one has done so on this machine.
    """
    if ray_address(config) == "local":
        claim_machine(f"/tmp/verl-skillcredit-{os.getuid()}.lock")


def start_ray(config: DictConfig, run: RunDirectory) -> None:
    """Start Ray for this run alone, or join the cluster at ``ray_kwargs.ray_init.address`` or RAY_ADDRESS.

    Raises:
        ClusterError: Ray cannot be reached, has fewer accelerators than the run needs, or has nodes with other packages
            than the driver's.
    """
    options: dict[str, Any] = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)  # type: ignore[assignment]
    options["runtime_env"] = runtime_environment(config, run, sys.executable)
    options["address"] = ray_address(config)
    if forks_workers(config):
        # Ray's 60 s would begin before the imports of their server, not after those of a worker.
        os.environ.setdefault("RAY_worker_register_timeout_seconds", "600")
    if options["address"] == "local":
        if options.get("num_gpus") is not None:
            options["num_gpus"] += engines_apart(config)
    else:
        # Ray refuses these options for a running cluster.
        for name in ("num_cpus", "num_gpus", "include_dashboard"):
            options.pop(name, None)
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        # Ray would assign no logical GPU at all.
        del os.environ["CUDA_VISIBLE_DEVICES"]
    try:
        ray.init(**options, log_to_driver=False, configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise ClusterError(f"Ray at address={options['address']!r} cannot be used: {error}") from error
    require_accelerators(config)
    if len(kinds := kinds_of_gpu(node["Resources"] for node in ray.nodes() if node["Alive"])) > 1:
        run.log_event("mixed_gpus", kinds=kinds)
    if options["address"] != "local":
        require_same_packages()


def runtime_environment(config: DictConfig, run: RunDirectory, python: str) -> dict[str, Any]:
    """Ray's runtime environment for a run: verl's, then ours, then ray_kwargs.ray_init.runtime_env; the last wins."""
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    chosen = OmegaConf.to_container(config.ray_kwargs.ray_init.get("runtime_env") or OmegaConf.create(), resolve=True)
    assert isinstance(chosen, dict)
    environment = OmegaConf.merge(
        get_ppo_ray_runtime_env(config),
        {"env_vars": run_environment(run) | processor_environment(config)},
        interpreter(python, config),
        # verl's configuration has null for each unset key.
        {key: value for key, value in chosen.items() if value is not None},
    )
    return OmegaConf.to_container(environment)  # type: ignore[return-value]


def forks_workers(config: DictConfig) -> bool:
    """Whether the run's workers are forked from one process (`fork_server`)."""
    return bool(config.trainer.device == "cpu" and ray_address(config) == "local" and sys.platform == "linux")


def interpreter(path: str, config: DictConfig) -> dict[str, str]:
    """The interpreter for Ray's runtime environment, if it is a command of `fork_server` or its path needs quoting.

    Ray passes the path to a shell unquoted, so with a blank in it the workers would never start.
    """
    if forks_workers(config):
        return {"py_executable": fork_server.executable(path, IMPORTED_ONCE)}
    quoted = shlex.quote(path)
    return {} if quoted == path else {"py_executable": quoted}


_KIND = "accelerator_type:"
LOOKS_AGAIN, SECONDS_BETWEEN_LOOKS = 3, 4.0

_claims: list[IO[str]] = []


def claim_machine(path: str) -> None:
    """Hold a lock until this process exits, so that only one run at a time has its own Ray on this machine.

    verl 0.9.1 names the sockets for the policy's weights after Ray's job number, which is 1 in every new Ray: two runs
    would wait for each other's weights forever.

    Raises:
        ClusterError: another run holds the lock.
    """
    # Neither closed nor removed: the kernel releases the lock when this process exits, in any way.
    file = open(path, "a+")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise ClusterError(
            f"another run (process {holder}) has started its own Ray on this machine, and verl's sockets of the two "
            "would collide. Wait until it ends, or let both share one Ray: ray start --head, then RAY_ADDRESS=auto."
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    _claims.append(file)


def run_environment(run: RunDirectory) -> dict[str, str]:
    """Environment variables that every Ray worker of this run gets."""
    return forwarded(os.environ) | {
        "TRANSFER_QUEUE_ENABLE": "1",
        # On nodes where the distribution is not installed, our code is only in the job's working directory.
        "VERL_USE_EXTERNAL_MODULES": "recipe.training.register",
        "WANDB_RUN_ID": run.wandb_id(),
        "WANDB_RESUME": "allow",
        "WANDB_DIR": str(run.path),
        RUN_FOLDER: str(run.path),
        "WANDB_SILENT": "true",
    }


def processor_environment(config: DictConfig) -> dict[str, str]:
    """Threads of a run without accelerators: Ray would give each process one."""
    if config.trainer.device != "cpu":
        return {}
    at_once = config.trainer.n_gpus_per_node + engines_apart(config)
    return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads_per_rank(at_once)))}


def require_accelerators(config: DictConfig) -> None:
    """Raise ClusterError if the cluster's nodes have too few GPUs: verl would wait for them forever."""
    wanted, each = config.trainer.nnodes, config.trainer.n_gpus_per_node
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if places(nodes, each) < wanted:
        present = ", ".join(f"{resources.get('GPU', 0):g}" for resources in nodes) or "no"
        raise ClusterError(
            f"the Ray cluster has nodes with {present} GPUs, this run needs "
            f"{wanted} times {each} on one node (trainer.nnodes, trainer.n_gpus_per_node). "
            "Change these keys, add nodes, or unset RAY_ADDRESS to start a separate Ray for the run."
        )
    total, apart = sum(int(resources.get("GPU", 0)) for resources in nodes), engines_apart(config)
    if total < wanted * each + apart:
        raise ClusterError(
            f"the Ray cluster has {total} GPUs, this run needs {wanted * each} for training and {apart} for engines "
            "(actor_rollout_ref.rollout.nnodes, n_gpus_per_node). Change these keys, or add nodes."
        )


def places(nodes: Iterable[Mapping[str, float]], gpus: int) -> int:
    """How many groups of so many GPUs fit on these nodes, each group on one node. nodes: the resources of each."""
    return sum(int(resources.get("GPU", 0)) // gpus for resources in nodes)


def kinds_of_gpu(nodes: Iterable[Mapping[str, float]]) -> list[str]:
    """The kinds of GPU that Ray found, sorted. nodes: the resources of each."""
    named = {name for resources in nodes if resources.get("GPU") for name in resources if name.startswith(_KIND)}
    return sorted(name.removeprefix(_KIND) for name in named)


def require_same_packages() -> None:
    """Raise ClusterError if workers on a node would import other packages than this process.

    Nodes that share a disk share the folder of the job's working directory too, and Ray unpacks it again for each of
    them: what differs is looked at again some seconds later.
    """
    lines = _differences()
    for _ in range(LOOKS_AGAIN):
        if lines:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            lines = _differences()
    if lines:
        raise ClusterError(
            "\n".join(["workers of the Ray cluster would import other packages than this process:", *lines])
            + "\nSubmit the run with scripts/ray_submit.sh, which sends its checkout to every node. Or put this commit "
            "and the versions in requirements/ on every node, before other checkouts on PYTHONPATH."
        )


def _differences() -> list[str]:
    try:
        return differences(installed(), on_nodes())
    except FileNotFoundError as error:
        return [f"this process: {error}"]


def on_this_node(actor_class: Any) -> Any:
    """The same actor class, placed on the driver's node, whose disk has the run directory.

    It requests no CPU: KubeRay's heads offer none (``num-cpus: "0"``), and it would wait forever.
    """
    node = ray.get_runtime_context().get_node_id()
    return actor_class.options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))


def session_logs() -> Path | None:
    """The folder of this Ray session's log files on this node."""
    node = getattr(ray._private.worker, "_global_node", None)
    return Path(node.get_logs_dir_path()) if node else None
