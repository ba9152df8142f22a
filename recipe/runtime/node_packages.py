"""Packages on the nodes of a joined Ray cluster: the workers must import the same sources as the driver."""

import hashlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

OURS = ("recipe", "rewards", "workers")
LIBRARIES = ("verl", "vllm")
SECONDS = 300.0  # for a node's answer; it may unpack the job's working directory first

# name -> (source for messages, identity); None if Python does not find it. The identity of our packages is the digest
# of their sources, because Ray unpacks a job's working directory at another path on each node. That of libraries is
# the version.
Packages = Mapping[str, tuple[str, str] | None]


def installed() -> dict[str, tuple[str, str] | None]:
    """The packages that this process would import."""
    return {name: _package(name) for name in OURS} | {name: _library(name) for name in LIBRARIES}


def _package(name: str) -> tuple[str, str] | None:
    spec = importlib.util.find_spec(name)
    folders = list(spec.submodule_search_locations or []) if spec else []
    if not folders:
        return None
    digest = hashlib.sha256()
    for file in sorted(Path(folders[0]).rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folders[0]).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return folders[0], digest.hexdigest()


def _library(name: str) -> tuple[str, str] | None:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    return f"version {version}", version.partition("+")[0]  # a cluster may mix builds, such as cpu and cu130


def differences(driver: Packages, nodes: Mapping[str, Packages | str]) -> list[str]:
    """One line per package of a node that is not the driver's.

    nodes: address -> its packages, or the reason why it did not answer.
    """
    lines = []
    for address, packages in nodes.items():
        if isinstance(packages, str):
            lines.append(f"node {address}: {packages}")
            continue
        for name, (source, identity) in ((name, one) for name, one in driver.items() if one is not None):
            there = packages.get(name)
            if there is None and name == "vllm":  # a node without GPUs can do without it
                continue
            if there is None:
                lines.append(f"node {address}: no package {name}; the driver's is {source}")
            elif there[1] != identity:
                lines.append(f"node {address}: {name} is {there[0]}, which differs from the driver's {source}")
    return lines


def on_nodes(seconds: float = SECONDS) -> dict[str, Packages | str]:
    """The packages that a worker of this job imports on each node: address -> packages, or why it did not answer.

    Nodes without CPUs and GPUs are left out: no worker runs there.
    """
    module = sys.modules[__name__]
    # A worker that finds another ``recipe`` could not import this function by its name.
    cloudpickle.register_pickle_by_value(module)
    try:
        # Without a CPU, the task does not wait for other jobs.
        task: Any = ray.remote(num_cpus=0, max_retries=0)(installed)
        references = {_address(node): _start(task, node) for node in ray.nodes() if _runs_workers(node)}
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    ready, _ = ray.wait(list(references.values()), num_returns=len(references), timeout=seconds)
    return {
        address: _answer(reference) if reference in ready else f"no answer within {seconds:g} s"
        for address, reference in references.items()
    }


def _start(task: Any, node: dict[str, Any]) -> Any:
    return task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()


def _runs_workers(node: dict[str, Any]) -> bool:
    return node["Alive"] and any(node["Resources"].get(kind, 0) > 0 for kind in ("CPU", "GPU"))


def _address(node: dict[str, Any]) -> str:
    return f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"


def _answer(reference: Any) -> Packages | str:
    try:
        packages: Packages = ray.get(reference)
    except RayError as error:
        return f"no worker could start: {error}"
    return packages
