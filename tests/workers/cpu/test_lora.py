"""Our LoRA wrapper adds what vLLM's own wrapper for a CPU adds."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.lora.layers import LoRAMapping
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

from workers.cpu.lora import OneAdapterPunicaWrapper

INPUTS, RANK, VOCABULARY = 24, 4, 40
SLICES = {"query, key and value": (16, 8, 8), "one": (20,)}
SLOTS = [7, 9, None]
"""Ids of the adapters in each slot; vLLM's own wrapper reads a token without an adapter as one of the last slot."""


def wrapper(kind: type[PunicaWrapperCPU], adapters: list[int], tokens: int, prefill: bool) -> PunicaWrapperCPU:
    """For requests of `tokens` tokens with these adapters' ids; 0: none."""
    built = kind(64, 8, "cpu")
    mapping = LoRAMapping(tuple(one for one in adapters for _ in range(tokens)), tuple(adapters), is_prefill=prefill)
    built.update_metadata(mapping, SLOTS, len(SLOTS), VOCABULARY)
    return built


def random_factors(outputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Both factors (slots, 1, ., .) of every adapter; zero in the empty slot."""
    first, second = torch.randn(3, 1, RANK, INPUTS), torch.randn(3, 1, outputs, RANK)
    first[SLOTS.index(None)] = second[SLOTS.index(None)] = 0
    return first.to(dtype), second.to(dtype)


def linear(adapters: list[int], tokens: int, sizes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Any:
    """Outputs before, and a function of a wrapper's class that returns them after it added the adapters."""
    torch.manual_seed(0)
    rows = tokens * len(adapters)
    x, y = torch.randn(rows, INPUTS).to(dtype), torch.randn(rows, sum(sizes)).to(dtype)
    a, b = zip(*(random_factors(size, dtype) for size in sizes), strict=True)

    def added(kind: type[PunicaWrapperCPU], scale: float = 1.0) -> Tensor:
        result = y.clone()
        wrapper(kind, adapters, tokens, prefill=tokens > 1).add_lora_linear(result, x, a, b, scale, sizes)
        return result

    return y, added


def logits(adapters: list[int], width: int = VOCABULARY, dtype: torch.dtype = torch.float32, head: bool = True) -> Any:
    torch.manual_seed(0)
    x, y = torch.randn(len(adapters), INPUTS).to(dtype), torch.randn(len(adapters), width).to(dtype)
    a, b = random_factors(VOCABULARY, dtype)
    if not head:
        a, b = torch.zeros_like(a), torch.zeros_like(b)

    def added(kind: type[PunicaWrapperCPU]) -> Tensor:
        result = y.clone()
        wrapper(kind, adapters, 3, prefill=True).add_lora_logits(result, x, a, b, 1.0)
        return result

    return y, added


def assert_same(added: Callable[..., Tensor], tolerance: float, *arguments: float) -> None:
    ours, theirs = (added(kind, *arguments) for kind in (OneAdapterPunicaWrapper, PunicaWrapperCPU))
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * float(theirs.abs().max()))


@pytest.fixture
def no_own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's own functions are an error."""
    for name in ("add_lora_linear", "add_lora_logits"):
        monkeypatch.delattr(PunicaWrapperCPU, name)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 0.02)], ids=str)
@pytest.mark.parametrize("tokens", [1, 5], ids=["decode", "prefill"])
@pytest.mark.parametrize("sizes", SLICES.values(), ids=SLICES)
@pytest.mark.parametrize("adapter", [7, 9])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_one_adapter_adds_what_vllms_wrapper_adds(
    dtype: torch.dtype, tolerance: float, tokens: int, sizes: tuple[int, ...], adapter: int, scale: float
):
    before, added = linear([adapter] * 3, tokens, sizes, dtype)
    assert_same(added, tolerance, scale)
    assert (added(OneAdapterPunicaWrapper, scale) - before).abs().max() > 1


def test_one_adapter_adds_the_scaled_product_to_each_slice():
    torch.manual_seed(0)
    sizes = (16, 8, 8)
    x, y = torch.randn(3, INPUTS), torch.randn(3, 32)
    a, b = zip(*(random_factors(size, torch.float32) for size in sizes), strict=True)
    expected = y + 0.5 * torch.cat([x @ p[1, 0].T @ q[1, 0].T for p, q in zip(a, b, strict=True)], dim=1)
    wrapper(OneAdapterPunicaWrapper, [9, 9, 9], 1, prefill=False).add_lora_linear(y, x, a, b, 0.5, sizes)
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("tokens", [1, 5], ids=["decode", "prefill"])
@pytest.mark.usefixtures("no_own_path")
def test_tokens_without_an_adapter_change_nothing(tokens: int):
    for before, added in (linear([0, 0], tokens, (16, 8, 8)), logits([0, 0])):
        assert torch.equal(added(OneAdapterPunicaWrapper), before)


@pytest.mark.parametrize("tokens", [1, 5], ids=["decode", "prefill"])
@pytest.mark.parametrize("adapters", [[7, 9], [9, 7, 7], [7, 0]], ids=str)
def test_several_adapters_take_vllms_own_path(adapters: list[int], tokens: int, monkeypatch: pytest.MonkeyPatch):
    for _, added in (linear(adapters, tokens, (16, 8, 8)), logits(adapters)):
        assert_same(added, 0)
    for name in ("add_lora_linear", "add_lora_logits"):
        monkeypatch.delattr(PunicaWrapperCPU, name)
    for _, added in (linear(adapters, tokens, (16, 8, 8)), logits(adapters)):
        with pytest.raises(NotImplementedError):
            added(OneAdapterPunicaWrapper)


def test_several_adapters_each_add_to_their_own_tokens():
    _, together = linear([7, 9], 5, (20,))
    whole = together(OneAdapterPunicaWrapper)
    for rows, adapter in ((slice(0, 5), 7), (slice(5, 10), 9)):
        _, alone = linear([adapter] * 2, 5, (20,))
        torch.testing.assert_close(whole[rows], alone(OneAdapterPunicaWrapper)[rows], rtol=1e-5, atol=1e-5)


def test_each_batch_sets_the_adapter_again():
    served = wrapper(OneAdapterPunicaWrapper, [7, 7], 2, prefill=True)
    found = []
    for adapters in ([9, 9], [7, 9], [0], [7]):
        mapping = LoRAMapping(tuple(adapters), tuple(adapters))
        served.update_metadata(mapping, SLOTS, len(SLOTS), VOCABULARY)
        assert isinstance(served, OneAdapterPunicaWrapper)
        found.append(served._slot)
    assert found == [1, None, -1, 0]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 0.02)], ids=str)
@pytest.mark.parametrize("width", [VOCABULARY, VOCABULARY + 8], ids=["vocabulary", "padded vocabulary"])
def test_the_heads_adapter_adds_what_vllms_wrapper_adds(width: int, dtype: torch.dtype, tolerance: float):
    before, added = logits([9, 9, 9], width, dtype)
    assert_same(added, tolerance)
    assert (added(OneAdapterPunicaWrapper) - before)[:, :VOCABULARY].abs().max() > 1
    assert torch.equal(added(OneAdapterPunicaWrapper)[:, VOCABULARY:], before[:, VOCABULARY:])


@pytest.mark.usefixtures("no_own_path")
def test_a_head_without_an_adapter_leaves_the_logits():
    before, added = logits([7, 7], head=False)
    assert torch.equal(added(OneAdapterPunicaWrapper), before)


def test_float32_logits_of_a_bfloat16_model_stay_float32():
    torch.manual_seed(0)
    x, y = torch.randn(2, INPUTS).bfloat16(), torch.randn(2, VOCABULARY)
    a, b = random_factors(VOCABULARY, torch.bfloat16)
    ours, theirs = y.clone(), y.clone()
    for kind, result in ((OneAdapterPunicaWrapper, ours), (PunicaWrapperCPU, theirs)):
        wrapper(kind, [7, 7], 1, prefill=False).add_lora_logits(result, x, a, b, 1.0)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02 * float(theirs.abs().max()))
