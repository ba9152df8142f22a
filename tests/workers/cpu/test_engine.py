"""verl's engine gets the gradients of plain transformers and peft from the fast parts."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workers.cpu.models import saved_model
from tests.workers.real_engine import actor_worker, in_ranks, samples, update

MODEL = "actor_rollout_ref.model"
PLAIN = [
    f"{MODEL}.use_fused_kernels=false",
    f"{MODEL}.use_remove_padding=false",
    f"{MODEL}.override_config.attn_implementation=eager",
]


def _gradients(rank: int, ranks: int, folder: str, model: str, *shared: str) -> None:
    import torch
    from torch import Tensor

    from workers.cpu import head
    from workers.cpu.adapter import use_lora_products
    from workers.displacement import local_gradients

    calls: list[int] = []
    statistics = head.token_statistics

    def counted(hidden: Tensor, weight: Tensor, labels: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        calls.append(len(hidden))
        return statistics(hidden, weight, labels, temperature)

    head.token_statistics = counted

    def gradient(*overrides: str, products: bool = False) -> Tensor:
        """Of an update, with random values in both factors of each adapter."""
        worker = actor_worker(model, "actor_rollout_ref.actor.optim.lr=0", *shared, *overrides)
        if products:
            use_lora_products(worker.engine.module)
        generator = torch.Generator().manual_seed(0)
        parameters: list[Any] = [one for one in worker.engine.module.parameters() if one.requires_grad]
        for one in parameters:
            one.data.to_local().copy_(0.05 * torch.randn(one.shape, generator=generator))
        found: list[Tensor] = []
        step = worker.engine.optimizer_step

        def kept() -> Any:
            found.extend(one.float().flatten().clone() for one in local_gradients(parameters))
            return step()

        worker.engine.optimizer_step = kept
        update(worker, samples(list(range(8)), advantages=[1.0, -1.0, 0.5, -0.5, 2.0, 1.0, 0.25, -1.5]))
        return torch.cat(found)

    plain = gradient(*PLAIN)
    used = len(calls)
    norms = {"plain": plain.norm(), "fast": (gradient() - plain).norm()}
    if not shared:
        norms["products"] = (gradient(products=True) - plain).norm()
    report = {name: float(norm) for name, norm in norms.items()} | {"plain calls": used, "fast calls": calls}
    Path(folder, "report.json").write_text(json.dumps(report))


@pytest.mark.slow
def test_the_fast_parts_give_the_gradients_of_the_plain_ones(tiny_suite: Path, tmp_path: Path):
    in_ranks(_gradients, 1, str(tmp_path), f"{tiny_suite}/initial_model")
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["plain"] > 0.01
    assert found["fast"] < 1e-4 * found["plain"]
    assert found["products"] < 1e-4 * found["plain"]
    assert found["plain calls"] == 0
    assert found["fast calls"] == [10, 10] * 2  # of four answers with two or three tokens each


@pytest.mark.slow
@pytest.mark.parametrize("adaptation", ["lora_micro", "full"])
def test_the_fast_parts_give_them_with_untied_embeddings(tiny_suite: Path, tmp_path: Path, adaptation: str):
    """FSDP2 shards that layer by itself, and the fast parts do not call it."""
    model = saved_model(tmp_path / "model", tiny_suite / "initial_model")
    in_ranks(_gradients, 1, str(tmp_path), str(model), f"adaptation={adaptation}")
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["plain"] > 0.01
    assert found["fast"] < 1e-4 * found["plain"]
    assert found["fast calls"]
