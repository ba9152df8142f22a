"""verl finds our engines in its registry."""

import copy
import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from verl.workers.engine import EngineRegistry

from tests.workers.real_engine import in_ranks
from workers import engines
from workers.engines import CpuValueEngine, PolicyEngine


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineRegistry, "_engines", copy.deepcopy(EngineRegistry._engines))


@pytest.mark.parametrize(("device", "vendor"), [("cuda", "nvidia"), ("cuda", "amd"), ("npu", "huawei"), ("cpu", "cpu")])
def test_the_policy_has_our_engine_on_every_platform(device: str, vendor: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engines, "get_device_name", lambda: device)
    monkeypatch.setattr(engines, "get_vendor", lambda: vendor)
    monkeypatch.setenv("VERL_ENGINE_DEVICE", device)
    monkeypatch.setenv("VERL_ENGINE_VENDOR", vendor)
    engines.register_engines()
    engines.register_engines()
    for backend in ("fsdp", "fsdp2"):
        assert EngineRegistry.get_engine_cls("language_model", backend) is PolicyEngine
    assert (EngineRegistry.get_engine_cls("value_model", "fsdp2") is CpuValueEngine) == (device == "cpu")


def _time_limit(rank: int, ranks: int, folder: str) -> None:
    import torch
    from torch.distributed import distributed_c10d

    from tests.composing import composed
    from workers.actor import SkillCreditActorRolloutRefWorker

    config = composed("experiment=quickstart", "actor_rollout_ref.nccl_timeout=77").actor_rollout_ref
    SkillCreditActorRolloutRefWorker(config, "actor_rollout")
    group = distributed_c10d._get_default_group()
    limit = group._get_backend(torch.device("cpu")).options._timeout
    Path(folder, f"{rank}.json").write_text(json.dumps([group.size(), limit.total_seconds()]))


@pytest.mark.slow
def test_the_process_groups_time_limit_is_the_configured_one(tmp_path: Path):
    in_ranks(_time_limit, 2, str(tmp_path))
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)] == [[2, 77], [2, 77]]


def _time_limits_of_a_mesh(rank: int, ranks: int, folder: str) -> None:
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    engines.prepare_worker_process(77)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("ddp", "fsdp"))
    groups = mesh.get_all_groups()

    def limits() -> list[float]:
        backends = (group._get_backend(torch.device("cpu")) for group in groups)
        return [backend.options._timeout.total_seconds() for backend in backends]

    before = limits()
    engines.limit_groups(None, mesh)
    Path(folder, f"{rank}.json").write_text(json.dumps([before, limits()]))


@pytest.mark.slow
def test_groups_of_a_mesh_have_the_limit_too(tmp_path: Path):
    in_ranks(_time_limits_of_a_mesh, 4, str(tmp_path))
    for rank in range(4):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == [[1800, 1800], [77, 77]]


# (shards per replica, ranks per sequence), and the ranks of rank 0's group of shards and of its data-parallel group.
MESHES = {
    "shards": ((-1, 1), [0, 1, 2, 3], [0, 1, 2, 3]),
    "replicas": ((2, 1), [0, 1], [0, 1, 2, 3]),
    "sequences": ((-1, 2), [0, 1, 2, 3], [0, 2]),
    "replicas and sequences": ((2, 2), [0, 1], [0, 2]),
}


def _groups_of_a_gpu(rank: int, ranks: int, folder: str) -> None:
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: F401  (registers the backend fake)
    from verl.workers.engine.fsdp import transformer_impl, utils

    from workers.displacement import displacement_norm, shard_group

    torch.distributed.init_process_group(
        "cpu:gloo,cuda:fake", init_method=f"file://{folder}/gpus", rank=rank, world_size=ranks
    )
    utils.get_device_name = lambda: "cuda"
    transformer_impl.device_name = "cuda"
    engines._limit = timedelta(seconds=77)
    found = {}
    for name, ((shards, sequence), _, _) in MESHES.items():
        engine: Any = object.__new__(PolicyEngine)
        engine.engine_config = SimpleNamespace(fsdp_size=shards, ulysses_sequence_parallel_size=sequence)
        engine._init_device_mesh()
        of_shards, parallel = shard_group(engine), engine.get_data_parallel_group()
        moved = displacement_norm([torch.zeros(1)], [torch.full((1,), 2.0**rank)], of_shards)
        total = torch.tensor(1 << rank)
        torch.distributed.all_reduce(total, group=parallel)
        limit = of_shards._get_backend(torch.device("cpu")).options._timeout.total_seconds()
        found[name] = [moved, int(total), engine.get_data_parallel_size(), limit]
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


@pytest.mark.slow
def test_on_gpus_sums_on_the_host_run_over_the_groups_of_every_layout(tmp_path: Path):
    in_ranks(_groups_of_a_gpu, 4, str(tmp_path))
    found = json.loads((tmp_path / "0.json").read_text())
    for name, ((_, sequence), of_shards, parallel) in MESHES.items():
        moved = sum(4.0**rank for rank in of_shards) ** 0.5
        assert found[name] == [pytest.approx(moved), sum(1 << rank for rank in parallel), 4 // sequence, 77], name


def test_the_policys_engine_limits_the_groups_of_its_meshes(monkeypatch: pytest.MonkeyPatch):
    limited: list[object] = []
    monkeypatch.setattr(engines, "limit_groups", lambda *meshes: limited.extend(meshes))
    engine = object.__new__(PolicyEngine)
    monkeypatch.setattr(
        PolicyEngine.__base__, "_init_device_mesh",
        lambda self: self.__dict__.update(device_mesh="a mesh", ulysses_device_mesh=None),
    )  # fmt: skip
    engine._init_device_mesh()
    assert limited == ["a mesh", None]


def test_on_a_gpu_verls_own_backend_is_joined_with_the_limit(monkeypatch: pytest.MonkeyPatch):
    joined: list[tuple] = []
    monkeypatch.setattr(engines, "is_cpu_platform", lambda: False)
    monkeypatch.setattr(
        engines, "initialize_global_process_group_ray", lambda seconds, backend: joined.append((seconds, backend))
    )
    engines.prepare_worker_process()
    assert joined == []  # verl's worker joins without our call
    engines.prepare_worker_process(1800)
    assert joined == [(1800, None)]
