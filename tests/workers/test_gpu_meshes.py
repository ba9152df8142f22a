"""The groups of a GPU's meshes, with NCCL replaced by torch's fake backend: sums of host tensors go over gloo."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workers.real_engine import in_ranks

pytestmark = pytest.mark.slow

# (ranks that share a copy of the parameters, ranks of a sequence): verl's fsdp_size and Ulysses' size.
LAYOUTS = {"shards": (-1, 1), "replicas": (2, 1), "sequences": (-1, 2)}
RANKS, LIMIT = 4, 77


def _sums(rank: int, ranks: int, folder: str) -> None:
    from types import SimpleNamespace
    from unittest import mock

    import torch
    from torch.testing._internal.distributed import fake_pg  # noqa: F401 - registers the backend
    from verl.utils import distributed
    from verl.workers.engine.fsdp import transformer_impl, utils

    from workers import engines
    from workers.constraints import halves_cosine
    from workers.displacement import displacement_norm, shard_group
    from workers.projection import constraint_gram

    for module, name, value in (
        (engines, "is_cpu_platform", lambda: False), (engines, "register_engines", lambda: None),
        (distributed, "get_device_name", lambda: "cuda"), (distributed, "get_nccl_backend", lambda: "fake"),
        (utils, "get_device_name", lambda: "cuda"), (transformer_impl, "device_name", "cuda"),
        (torch.cuda, "set_device", lambda device: None),
    ):  # fmt: skip
        mock.patch.object(module, name, value).start()
    engines.prepare_worker_process(LIMIT)
    engines.prepare_worker_process()
    found: dict[str, Any] = {}
    for layout, (size, sequence) in LAYOUTS.items():
        engine: Any = object.__new__(engines.PolicyEngine)
        engine.engine_config = SimpleNamespace(fsdp_size=size, ulysses_sequence_parallel_size=sequence)
        engine._init_device_mesh()
        group, mine = shard_group(engine), torch.tensor([2.0**rank])
        meshes = [one for one in (engine.device_mesh, engine.ulysses_device_mesh) if one is not None]
        groups = [group for mesh in meshes for group in mesh.get_all_groups()]
        weight = torch.ones((), dtype=torch.float64)
        torch.distributed.all_reduce(weight, group=engine.get_data_parallel_group())
        found[layout] = {
            "devices": [mesh.device_type for mesh in meshes],
            "norm": displacement_norm([torch.zeros(1)], [mine], group),
            "gram": constraint_gram([mine[None]], group).tolist(),
            "cosine": halves_cosine([torch.ones(1)], [torch.tensor([1.0 + rank])], group),
            "parallel": weight.item(),
            "limits": [one._get_backend(torch.device("cpu")).options._timeout.total_seconds() for one in groups],
        }
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("meshes")
    in_ranks(_sums, RANKS, str(folder))
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize(
    ("layout", "members", "parallel", "groups"),
    [("shards", [[0, 1, 2, 3]] * 4, 4, 1), ("replicas", [[0, 1], [0, 1], [2, 3], [2, 3]], 4, 2),
     ("sequences", [[0, 1, 2, 3]] * 4, 2, 3)],
)  # fmt: skip
def test_sums_over_shards_count_each_parameter_once(
    found: list[dict], layout: str, members: list[list[int]], parallel: int, groups: int
):
    """Rank r holds a shard of the one number 2^r. A group of the mesh of sequences is verl's own of shards, too."""
    for rank, shards in enumerate(members):
        square = sum(4.0**shard for shard in shards)
        numbers = found[rank][layout]
        assert numbers["devices"] == ["cuda"] * len(numbers["devices"])
        assert numbers["norm"] == pytest.approx(square**0.5)
        assert numbers["gram"] == [[pytest.approx(square)]]
        along, length = sum(shards), sum(shard**2 for shard in shards)  # halves of (1, 1, ...) and (0, 1, ...)
        assert numbers["cosine"] == pytest.approx(along / (len(shards) * length) ** 0.5)
        assert numbers["parallel"] == parallel
        assert numbers["limits"] == [LIMIT] * groups
