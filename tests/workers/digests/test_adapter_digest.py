"""The engine's adapter is compared with the actor's after each transfer; a difference ends the run."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from workers.digests import WeightsDifferError
from workers.digests.adapter import HeldAdapter, digest, digest_of_actor, update_and_compare

NUMBER, RANK, SLOTS_RANK = 123, 2, 4
PEFT = {"r": RANK, "lora_alpha": 6}
LAYERS = (0, 11)


def adapter(seed: int) -> dict[str, Tensor]:
    """Of q and k, which vLLM joins, and of o, in two layers."""
    drawn = torch.Generator().manual_seed(seed)
    shapes = {"q_proj": (8, 6), "k_proj": (4, 6), "o_proj": (6, 8)}
    made = {}
    for layer in LAYERS:
        for name, (outputs, inputs) in shapes.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            made[f"{prefix}.lora_A.weight"] = torch.randn(RANK, inputs, generator=drawn)
            made[f"{prefix}.lora_B.weight"] = torch.randn(outputs, RANK, generator=drawn)
    return made


class Receiver(HeldAdapter):
    """Stands for a vLLM worker: buffers of one slot for q and k in one module, o, and a head without an adapter."""

    def __init__(self, dtype: torch.dtype = torch.float32):
        def stacked(rows: int, columns: int) -> Tensor:
            return torch.zeros(1, 1, rows, columns, dtype=dtype)

        self.modules: dict[str, Any] = {
            "lm_head": SimpleNamespace(lora_a_stacked=stacked(SLOTS_RANK, 6), lora_b_stacked=stacked(9, SLOTS_RANK))
        }
        for layer in LAYERS:
            self.modules |= {
                f"model.layers.{layer}.self_attn.qkv_proj": SimpleNamespace(
                    lora_a_stacked=(stacked(SLOTS_RANK, 6), stacked(SLOTS_RANK, 6)),
                    lora_b_stacked=(stacked(8, SLOTS_RANK), stacked(4, SLOTS_RANK)),
                ),
                f"model.layers.{layer}.self_attn.o_proj": SimpleNamespace(
                    lora_a_stacked=(stacked(SLOTS_RANK, 8),), lora_b_stacked=(stacked(6, SLOTS_RANK),)
                ),
            }
        self.manager = SimpleNamespace(
            modules=self.modules, lora_index_to_id=[None], get_adapter=lambda number: SimpleNamespace(rank=RANK)
        )
        self.model_runner = SimpleNamespace(lora_manager=SimpleNamespace(_adapter_manager=self.manager))
        self.dtype = dtype

    def load(self, weights: dict[str, Tensor]) -> None:
        scale = PEFT["lora_alpha"] / PEFT["r"]
        places = {"q_proj": ("qkv_proj", 0), "k_proj": ("qkv_proj", 1), "o_proj": ("o_proj", 0)}
        for name, values in weights.items():
            *prefix, own, _, _ = name.removeprefix("base_model.model.").split(".")
            joined, place = places[own]
            module = self.modules[".".join([*prefix, joined])]
            kept = values.to(self.dtype)
            if ".lora_A." in name:
                module.lora_a_stacked[place][0, 0, :RANK] = kept
            else:
                module.lora_b_stacked[place][0, 0, :, :RANK] = kept.mul_(scale) if scale != 1 else kept
        self.manager.lora_index_to_id = [NUMBER]


async def sent(receiver: Receiver, weights: dict[str, Tensor], loads: bool = True, **options: Any) -> None:
    async def update(given: Any, **_: Any) -> None:
        received = {name: values.clone() for name, values in given}
        if loads:
            receiver.load(received)

    async def require(trained: str, step: int | None) -> None:
        receiver.require_adapter(NUMBER, trained, step)

    options = {"peft_config": PEFT, "base_sync_done": True, "global_steps": 7} | options
    await update_and_compare(update, require, receiver.dtype, weights.items(), **options)


@pytest.mark.asyncio
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
async def test_an_adapter_that_arrived_is_the_actors(dtype: torch.dtype):
    receiver = Receiver(dtype)
    await sent(receiver, adapter(0))
    await sent(receiver, adapter(1))
    assert receiver.adapter_digest(NUMBER) == digest_of_actor(adapter(1).items(), PEFT, dtype)
    assert receiver.adapter_digest(NUMBER) != digest_of_actor(adapter(0).items(), PEFT, dtype)


@pytest.mark.asyncio
async def test_a_transfer_that_the_engine_did_not_use_ends_the_run_with_one_message():
    receiver = Receiver()
    await sent(receiver, adapter(0))
    held, trained = receiver.adapter_digest(NUMBER), digest_of_actor(adapter(1).items(), PEFT, torch.float32)
    with pytest.raises(WeightsDifferError) as refused:
        await sent(receiver, adapter(1), loads=False)
    assert f"after step 7 the engine computes with adapter {held}, and {trained} was trained" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.asyncio
async def test_an_engine_without_any_adapter_or_with_a_damaged_one_ends_the_run():
    with pytest.raises(WeightsDifferError, match=digest([])):
        await sent(Receiver(), adapter(0), loads=False)
    receiver = Receiver()
    await sent(receiver, adapter(0))
    receiver.modules["model.layers.0.self_attn.o_proj"].lora_b_stacked[0].zero_()  # the memory of a sleeping engine
    with pytest.raises(WeightsDifferError):
        await sent(receiver, adapter(0), loads=False)


@pytest.mark.asyncio
async def test_layers_in_each_others_place_end_the_run():
    def exchanged(name: str) -> str:
        first, second = (f".{layer}." for layer in LAYERS)
        return name.replace(first, second) if first in name else name.replace(second, first)

    receiver = Receiver()
    receiver.load({exchanged(name): values for name, values in adapter(0).items()})
    with pytest.raises(WeightsDifferError):
        await sent(receiver, adapter(0), loads=False)


@pytest.mark.asyncio
async def test_all_weights_are_only_sent(caplog: pytest.LogCaptureFixture):
    await sent(Receiver(), adapter(0), loads=False, peft_config=None)
    await sent(Receiver(), adapter(0), loads=False, base_sync_done=False)
    assert not caplog.records


@pytest.mark.asyncio
async def test_an_adapter_that_cannot_be_compared_is_sent_and_reported_once(caplog: pytest.LogCaptureFixture):
    other = adapter(0) | {"embed_tokens.lora_embedding_A": torch.ones(2, 2)}
    await sent(Receiver(), other, loads=False)
    await sent(Receiver(), other, loads=False)
    (record,) = caplog.records
    assert "not compared with the trained one: it has embed_tokens.lora_embedding_A beside" in record.getMessage()
    assert digest_of_actor([("embed.lora_embedding_A", torch.ones(2, 2))], PEFT, torch.float32) is None
