"""The worker of a trainer with engines apart goes back to a step's first weights, and on from its last, exactly."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workers.real_engine import actor_worker, in_ranks, samples, update

SHARES = {1: [[0, 1, 2, 3]], 2: [[0, 1], [2, 3]]}


def _run(rank: int, ranks: int, folder: str, model: str) -> None:
    import torch
    from omegaconf import OmegaConf
    from verl.utils import tensordict_utils as tu

    from workers.detached import SkillCreditDetachedWorker

    def batch() -> Any:
        return samples(SHARES[ranks][rank], ranks, advantages=[1.0, -1.0, 0.5, -0.5])

    def log_probs(trained: Any) -> torch.Tensor:
        data = batch()
        tu.assign_non_tensor(data, micro_batch_size_per_gpu=1, compute_loss=False)
        values: torch.Tensor = trained.infer_batch(data)["log_probs"].values().float()
        return values

    def weights(trained: Any) -> list[torch.Tensor]:
        return [shard.clone() for shard in trained._shards()]

    def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
        return all(map(torch.equal, one, other))

    trained, plain = actor_worker(model), actor_worker(model)
    for one in (trained, plain):
        one.engine_config.micro_batch_size_per_gpu = len(SHARES[ranks][rank])
    worker = SkillCreditDetachedWorker.__new__(SkillCreditDetachedWorker)
    worker.actor, worker.config = trained, OmegaConf.create({"actor": {"strategy": "fsdp2"}})
    worker._strategy_handlers = None
    worker.save_model_to_cpu(0)
    first, begun = log_probs(trained), weights(trained)
    update(trained, batch())
    second, moved = log_probs(trained), weights(trained)
    worker.save_model_to_cpu(1)
    worker.restore_model_from_cpu(0)
    found = {"moved": not equal(begun, moved), "back": equal(begun, weights(trained))}
    found |= {"as before": torch.equal(first, log_probs(trained)), "other": not torch.equal(first, second)}
    worker.restore_model_from_cpu(1)
    found |= {"again": equal(moved, weights(trained)), "as after": torch.equal(second, log_probs(trained))}
    worker.restore_model_from_cpu(0)
    log_probs(trained)  # leaves gathered weights
    worker.restore_model_from_cpu(1)
    update(trained, batch())
    for _ in range(2):
        update(plain, batch())
    found["goes on"] = equal(weights(plain), weights(trained))
    Path(folder, f"found_{rank}.json").write_text(json.dumps(found))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", SHARES)
def test_it_goes_back_and_on_exactly(ranks: int, tiny_suite: Path, tmp_path: Path):
    in_ranks(_run, ranks, str(tmp_path), f"{tiny_suite}/initial_model")
    for rank in range(ranks):
        found = json.loads((tmp_path / f"found_{rank}.json").read_text())
        assert found == dict.fromkeys(found, True)
