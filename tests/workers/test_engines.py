"""verl finds our engines in its registry."""

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

from tests.workers.real_engine import in_ranks
from workers import engines
from workers.engines import CpuValueEngine, PolicyEngine, ValueEngine
from workers.ranks import roll_call


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineRegistry, "_engines", copy.deepcopy(EngineRegistry._engines))
    monkeypatch.setattr(engines, "_limit", None)


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
    critic = EngineRegistry.get_engine_cls("value_model", "fsdp2")
    assert critic is (CpuValueEngine if device == "cpu" else ValueEngine)


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
    engines.prepare_worker_process()  # as the actor's engine does, in the process that the outer worker prepared
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


@pytest.mark.parametrize(
    ("own", "of_verl"), [(PolicyEngine, FSDPEngineWithLMHead), (CpuValueEngine, FSDPEngineWithValueHead)]
)
def test_an_engine_limits_the_groups_of_its_meshes(monkeypatch: pytest.MonkeyPatch, own: type, of_verl: type):
    limited: list[object] = []
    monkeypatch.setattr(engines, "limit_groups", lambda *meshes: limited.extend(meshes))
    engine: Any = object.__new__(own)
    monkeypatch.setattr(
        of_verl, "_init_device_mesh",
        lambda self: self.__dict__.update(device_mesh="a mesh", ulysses_device_mesh=None),
    )  # fmt: skip
    engine._init_device_mesh()
    assert limited == ["a mesh", None]


def test_on_a_gpu_verls_own_backend_is_joined_with_the_limit(monkeypatch: pytest.MonkeyPatch):
    joined: list[tuple] = []
    called: list[float] = []
    monkeypatch.setattr(engines, "is_cpu_platform", lambda: False)
    monkeypatch.setattr(roll_call, "begin", called.append)
    monkeypatch.setattr(
        engines, "initialize_global_process_group_ray", lambda seconds, backend: joined.append((seconds, backend))
    )
    engines.prepare_worker_process()
    assert joined == []  # verl's worker joins without our call
    engines.prepare_worker_process(1800)
    assert (joined, called) == ([(1800, None)], [1800])


def test_the_engines_of_a_process_have_the_limit_of_the_worker_that_joined(monkeypatch: pytest.MonkeyPatch):
    limited: list[tuple[float, str]] = []
    monkeypatch.setattr(engines, "is_cpu_platform", lambda: False)
    monkeypatch.setattr(roll_call, "begin", lambda seconds: None)
    monkeypatch.setattr(engines, "initialize_global_process_group_ray", lambda seconds, backend: None)
    monkeypatch.setattr(engines, "_set_pg_timeout", lambda limit, group: limited.append((limit.total_seconds(), group)))
    mesh: Any = SimpleNamespace(get_all_groups=lambda: ["replicas", "shards"])
    engines.limit_groups(mesh)
    engines.prepare_worker_process(77)  # verl's worker of actor, rollout and reference, which knows the limit
    engines.prepare_worker_process()  # the training worker that it makes, which does not
    engines.limit_groups(mesh, None)
    assert limited == [(77, "replicas"), (77, "shards")]
