"""What verl's engine sends as merged adapters is the trainer's policy, and sending changes nothing in the trainer."""

from pathlib import Path
from typing import Any

import pytest

from tests.workers.real_engine import actor_worker, in_ranks

RANKS = 2
SCALE = 16 / 8  # alpha and rank of the quickstart
TOLERANCE = {"float32": 1e-6, "bfloat16": 2**-8}


def _send(rank: int, ranks: int, folder: str, model: str) -> None:
    import torch
    from torch.distributed.tensor import distribute_tensor
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).state_dict()
    for precision, tolerance in TOLERANCE.items():
        words = ["actor_rollout_ref.model.lora.merge=true", f"run.precision={precision}"]
        engine = actor_worker(model, *words).engine
        parameters: dict[str, Any] = dict(engine.module.named_parameters())
        generator = torch.Generator().manual_seed(0)
        for one in (one for one in parameters.values() if one.requires_grad):
            values = 0.05 * torch.randn(one.shape, generator=generator)
            one.data.copy_(distribute_tensor(values, one.device_mesh, one.placements))
        before = {name: one.full_tensor().clone() for name, one in parameters.items()}
        sent = {name: weight.float() for name, weight in list(engine.get_per_tensor_param(base_sync_done=True)[0])}
        assert all(torch.equal(one.full_tensor(), before[name]) for name, one in parameters.items())
        adapted = 0
        for name, weight in base.items():
            first = f"base_model.model.{name.removesuffix('.weight')}.lora_A.default.weight"
            if first in before:
                adapted += 1
                weight = weight + SCALE * before[first.replace("lora_A", "lora_B")] @ before[first]
            torch.testing.assert_close(sent[name], weight, rtol=tolerance, atol=tolerance / 10)
        assert adapted == 14  # seven linear layers in each of two blocks


@pytest.mark.slow
def test_merged_weights_are_base_plus_adapter_to_the_run_s_precision(tiny_suite: Path, tmp_path: Path):
    in_ranks(_send, RANKS, str(tmp_path), f"{tiny_suite}/initial_model")
