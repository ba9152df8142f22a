"""A run's Ray session: one own Ray per machine at a time, and the environment of its workers."""

import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf

from recipe import cluster
from recipe.records.run_directory import RunDirectory
from recipe.runtime import fork_server, ray_session
from recipe.runtime.console import TrainingState
from recipe.runtime.ray_session import (
    ClusterError,
    claim_machine,
    claim_own_ray,
    interpreter,
    run_environment,
    runtime_environment,
)
from recipe.settings import engines_apart
from tests.composing import composed

HOLDER = """
import sys
from recipe.runtime.ray_session import claim_machine
claim_machine(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_second_run_is_refused_with_the_holder_named_until_the_first_is_gone(tmp_path):
    path = str(tmp_path / "lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(ClusterError, match=rf"process {first.pid}\) .*RAY_ADDRESS=auto"):
            claim_machine(path)
        first.kill()
    claim_machine(path)
    with open(path) as file:
        assert file.read() == str(os.getpid())


def test_a_run_with_its_own_ray_claims_the_machine_before_its_first_record(monkeypatch):
    config = composed("experiment=quickstart")
    claimed: list[str] = []
    monkeypatch.setattr(ray_session, "claim_machine", claimed.append)
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    claim_own_ray(config)
    assert claimed == []
    monkeypatch.delenv("RAY_ADDRESS")
    claim_own_ray(config)
    assert len(claimed) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/usr/bin/python3", {}),
        ("/home/a b/.venv/bin/python", {"py_executable": "'/home/a b/.venv/bin/python'"}),
        ("/home/it's/python", {"py_executable": "'/home/it'\"'\"'s/python'"}),
    ],
)
def test_an_interpreter_whose_path_a_shell_would_split_is_quoted_for_ray(path: str, named: dict[str, str]) -> None:
    assert interpreter(path, composed("experiment=quickstart", "platform=gpu_1x8")) == named


def test_workers_of_a_run_with_its_own_ray_on_a_cpu_are_forked_unless_another_command_is_named(monkeypatch) -> None:
    config, path = composed("experiment=quickstart"), "/home/it's/python"
    words = shlex.split(interpreter(path, config)["py_executable"])
    assert words[:5] == [path, "-I", "-S", fork_server.__file__, "run"]
    for top, _, rest in (name.partition(".") for name in words[-1].split(",")):
        found = find_spec(top)  # of a submodule it would import its package
        assert found is not None
        assert found.submodule_search_locations is not None
        file = Path(found.submodule_search_locations[0], *rest.split("."))
        assert file.with_suffix(".py").exists() or file.is_dir()
    assert words[5] != shlex.split(interpreter(path, config)["py_executable"])[5]  # of another run
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert interpreter("/usr/bin/python3", config) == {}


@pytest.mark.slow
def test_ray_waits_long_enough_for_the_imports_of_a_server(monkeypatch, tmp_path) -> None:
    waits = "RAY_worker_register_timeout_seconds"
    monkeypatch.setenv(waits, "1")
    monkeypatch.delenv(waits)
    monkeypatch.setattr(ray, "init", lambda **_: (_ for _ in ()).throw(ConnectionError("no")))
    with pytest.raises(ray_session.ClusterError, match="cannot be used: no"):
        ray_session.start_ray(composed("experiment=quickstart"), RunDirectory(tmp_path))
    assert float(os.environ.pop(waits)) >= 600
    with pytest.raises(ray_session.ClusterError, match="cannot be used: no"):
        ray_session.start_ray(composed("experiment=quickstart", "platform=gpu_1x8"), RunDirectory(tmp_path))
    assert waits not in os.environ  # these have no server


def test_what_the_configuration_leaves_open_does_not_undo_what_the_run_needs(tmp_path) -> None:
    python = "/home/a b/.venv/bin/python"
    key = "ray_kwargs.ray_init.runtime_env"
    run = RunDirectory(tmp_path)
    found = runtime_environment(composed("experiment=quickstart", "platform=gpu_1x8"), run, python)
    assert found["py_executable"] == "'/home/a b/.venv/bin/python'"
    chosen = composed("experiment=quickstart", f"{key}.py_executable=python3", f"+{key}.env_vars.MINE=1")
    found = runtime_environment(chosen, run, python)
    assert found["py_executable"] == "python3"
    assert found["env_vars"]["MINE"] == 1
    assert {"WANDB_DIR", "VERL_USE_EXTERNAL_MODULES"} <= set(found["env_vars"])


def test_ranks_get_the_drivers_network_settings_and_no_token_is_shown(tmp_path, monkeypatch) -> None:
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "HF_HOME", "HF_TOKEN", "WANDB_API_KEY", "SANDBOX_TOKEN"):
        monkeypatch.setenv(name, name.lower())
    found = run_environment(RunDirectory(tmp_path))
    assert found["NCCL_SOCKET_IFNAME"] == "nccl_socket_ifname"
    assert {"GLOO_SOCKET_IFNAME", "HF_HOME"} <= set(found)
    assert not {"HF_TOKEN", "WANDB_API_KEY", "SANDBOX_TOKEN"} & set(found)


def node(gpus: int, alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"CPU": 8.0} | ({"GPU": float(gpus)} if gpus else {})}


@pytest.mark.parametrize(
    ("nodes", "gpus", "nnodes", "per_node"),
    [
        ([node(8)], "8", 2, 8),
        ([node(0), node(4), node(4)], "0, 4, 4", 1, 8),  # as many in all, but verl packs a group on one node
        ([node(8), node(8, alive=False)], "8", 2, 8),
        ([], "no", 1, 1),
    ],
)
def test_nodes_without_the_gpus_of_a_run_are_refused_before_verl_waits_for_them(
    monkeypatch, nodes: list[dict[str, Any]], gpus: str, nnodes: int, per_node: int
) -> None:
    config = OmegaConf.create({"trainer": {"nnodes": nnodes, "n_gpus_per_node": per_node}})
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    with pytest.raises(ClusterError, match=f"nodes with {gpus} GPUs, this run needs {nnodes} times {per_node} on one"):
        ray_session.require_accelerators(config)


def test_gpus_of_several_kinds_are_named() -> None:
    kinds = [{"GPU": 8.0, "accelerator_type:A100": 1.0}, {"CPU": 4.0}, {"GPU": 8.0, "accelerator_type:H100": 1.0}]
    assert ray_session.kinds_of_gpu(kinds) == ["A100", "H100"]
    assert ray_session.kinds_of_gpu([kinds[0], kinds[1], {"accelerator_type:L4": 1.0}]) == ["A100"]
    line = TrainingState().take({"event": "mixed_gpus", "kinds": ["A100", "H100"]})
    assert line is not None
    assert "several kinds (A100, H100)" in line


def test_the_room_of_a_cluster_counts_runs_that_fit_on_its_nodes(monkeypatch, capsys) -> None:
    free = {"a": {"GPU": 6.0}, "b": {"GPU": 6.0, "CPU": 1.0}, "head": {"CPU": 4.0}}
    monkeypatch.setattr(cluster, "_join", lambda: None)
    monkeypatch.setattr(cluster, "available_resources_per_node", lambda: free)
    for nnodes, per_node, runs in ((1, 4, 2), (2, 3, 2), (1, 8, 0), (1, 1, 12)):
        trainer = OmegaConf.create({"trainer": {"nnodes": nnodes, "n_gpus_per_node": per_node}})
        monkeypatch.setattr(cluster, "compose_training", lambda overrides, trainer=trainer: trainer)
        cluster.room([])
        assert capsys.readouterr().out == f"{runs}\n"


def test_a_run_may_take_part_of_a_node_and_two_parts_of_one(monkeypatch) -> None:
    config = OmegaConf.create({"trainer": {"nnodes": 2, "n_gpus_per_node": 4}})
    for nodes in ([node(8)], [node(7), node(0), node(4)]):
        monkeypatch.setattr(ray, "nodes", lambda nodes=nodes: nodes)
        ray_session.require_accelerators(config)


def test_engines_apart_need_accelerators_beside_the_trainers(monkeypatch) -> None:
    engines = {"hybrid_engine": False, "rollout": {"nnodes": 1, "n_gpus_per_node": 2}}
    config = OmegaConf.create({"trainer": {"nnodes": 1, "n_gpus_per_node": 2}, "actor_rollout_ref": engines})
    assert engines_apart(config) == 2
    monkeypatch.setattr(ray, "nodes", lambda: [node(4)])
    ray_session.require_accelerators(config)
    monkeypatch.setattr(ray, "nodes", lambda: [node(3)])
    with pytest.raises(ClusterError, match="has 3 GPUs, this run needs 2 for training and 2 for engines"):
        ray_session.require_accelerators(config)
    engines["hybrid_engine"] = True
    assert engines_apart(OmegaConf.create({"actor_rollout_ref": engines})) == 0


HEAD_WITHOUT_PROCESSORS = """
import ray
from recipe.runtime.ray_session import on_this_node

ray.init(address="local", num_cpus=0, include_dashboard=False, log_to_driver=False)

@ray.remote(num_cpus=1)
class Runner:
    def where(self):
        return ray.get_runtime_context().get_node_id()

runner = on_this_node(Runner).remote()
assert ray.get(runner.where.remote(), timeout=120) == ray.get_runtime_context().get_node_id()
print("ran")
"""


@pytest.mark.slow  # starts its own Ray
def test_the_runner_starts_on_a_head_that_has_no_processor_to_give() -> None:
    variables = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", HEAD_WITHOUT_PROCESSORS], env=variables, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.splitlines()[-1:] == ["ran"], done.stderr[-2000:]
