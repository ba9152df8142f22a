"""Replicas (HSDP) and sequence parallelism (Ulysses): a protected update of several ranks is that of one."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.workers.cpu.models import saved_model
from tests.workers.real_engine import actor_worker, answer, in_ranks, samples, update

pytestmark = pytest.mark.slow

ACTOR = "actor_rollout_ref.actor"
ADVANTAGES = [1.0, -1.0, 0.5, -0.5, 2.0, 1.0, 0.0, -1.5]
# Two micro-batches of sequences of 5, 5, 6 and 6 tokens: half of them, a rank's part, ends within a sequence.
SHARES = {1: [[0, 2, 1, 3, 4, 6, 5, 7]], 4: [[0, 3], [1, 4], [2, 5], [6, 7]]}
# (ranks, ranks of a group of shards, ranks of a sequence): (4, 2, 1) is two replicas of two shards.
LAYOUTS = {"one rank": (1, -1, 1), "two replicas": (4, 2, 1), "sequence parallel": (2, -1, 2)}


def _exchange_with_gloo(outputs: list[Any], inputs: list[Any], group: Any = None, async_op: bool = False) -> None:
    """torch.distributed.all_to_all, which gloo has for one tensor only."""
    sent = torch.stack(inputs)
    received = torch.empty_like(sent)
    torch.distributed.all_to_all_single(received, sent, group=group)
    for output, part in zip(outputs, received, strict=True):
        output.copy_(part)


def _run(rank: int, ranks: int, folder: str, model: str, size: int, sequence: int) -> None:
    from workers.displacement import local_shard
    from workers.update_request import PROTECTION

    setattr(torch.distributed, "all_to_all", _exchange_with_gloo)  # noqa: B010 - another type
    parallel = ranks // sequence
    share = SHARES[parallel][rank // sequence]
    layout = [f"{ACTOR}.fsdp_config.fsdp_size={size}", f"{ACTOR}.ulysses_sequence_parallel_size={sequence}"]
    worker = actor_worker(model, f"{ACTOR}.loss_agg_mode=token-mean", *layout)
    worker.engine_config.micro_batch_size_per_gpu = len(share) // 2
    constraint = {"name": "kept", "skill": 1, "solutions": [answer(row) for row in range(3, 8)]}
    # A gain is asked for, so that the projection moves the step.
    protection = {"constraints": [constraint], "method": "qp", "epsilon": -0.5, "epsilon_kind": "cosine"}
    numbers = update(worker, samples(share, parallel, advantages=ADVANTAGES), **{PROTECTION: protection})
    weights = b"".join(local_shard(one.detach()).numpy().tobytes() for one in worker.engine.module.parameters())
    found = {"numbers": numbers, "digest": hashlib.sha256(weights).hexdigest()}
    Path(folder, f"found_{rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def model(tiny_suite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four heads, which two ranks can share."""
    return saved_model(tmp_path_factory.mktemp("model"), tiny_suite / "initial_model")


@pytest.fixture(scope="module")
def found(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    results = {}
    for name, (ranks, size, sequence) in LAYOUTS.items():
        folder = tmp_path_factory.mktemp(name.replace(" ", "_"))
        in_ranks(_run, ranks, str(folder), str(model), size, sequence)
        results[name] = [json.loads((folder / f"found_{rank}.json").read_text()) for rank in range(ranks)]
    return results


def test_a_rank_s_part_of_the_tokens_ends_within_a_sequence():
    for micro in (SHARES[1][0][:4], SHARES[1][0][4:]):
        ends = np.cumsum([sum(map(len, answer(row)[:2])) for row in micro])
        assert ends[-1] % 2 == 0
        assert ends[-1] // 2 not in ends


@pytest.mark.parametrize("layout", ["two replicas", "sequence parallel"])
def test_a_protected_update_is_that_of_one_rank(found: dict[str, list[dict[str, Any]]], layout: str):
    (alone,), together = found["one rank"], [one for one in found[layout] if one["numbers"]]
    assert together
    assert alone["numbers"]["projection/moved"] > 0.01
    for name in ("moved", "displacement_norm", "gradient_norm/kept", "predicted_change/kept"):
        wanted = pytest.approx(alone["numbers"][f"projection/{name}"], rel=1e-4)
        assert [one["numbers"][f"projection/{name}"] for one in together] == [wanted] * len(together), name


def test_replicas_are_equal_to_the_last_bit(found: dict[str, list[dict[str, Any]]]):
    first, second, *replica = (one["digest"] for one in found["two replicas"])
    assert replica == [first, second]
    assert first != second
