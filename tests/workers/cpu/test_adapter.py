"""LoRA layers as products agree with peft's own, and everything but one plain adapter is left to peft."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear
from torch import Tensor, nn

from tests.workers.cpu.models import VOCABULARY, tiny_model
from workers.cpu import adapter
from workers.cpu.adapter import use_lora_products

TOKENS = torch.arange(2 * 7).view(2, 7) % VOCABULARY


def adapted(kind: str = "llama", dtype: torch.dtype = torch.float32, **settings: Any) -> PeftModel:
    """A tiny model with an adapter on each linear layer whose two factors are both random."""
    config = LoraConfig(r=4, lora_alpha=10, target_modules="all-linear", **settings)
    model = get_peft_model(tiny_model(kind, dtype), config)
    randomize(model)
    return model.eval()


def randomize(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


def outcome(
    model: PeftModel, context: Callable[[], AbstractContextManager] = nullcontext, keep: bool = False
) -> dict[str, Tensor]:
    """Logits and the gradients of a random weighted sum of them, by the names of parameters."""
    torch.manual_seed(4)
    with context():
        logits = model(input_ids=TOKENS).logits.float()
    found = {"logits": logits.detach()}
    generator = torch.Generator().manual_seed(5)
    (logits * torch.randn(logits.shape, generator=generator)).sum().div(logits.shape[1]).backward()
    found |= {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    if not keep:
        model.zero_grad()
    return found


class Products:
    """Counts the layers that computed by products."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.count = 0
        product = adapter._LoraProduct.apply

        def counted(*arguments: Any) -> Any:
            self.count += 1
            return product(*arguments)

        monkeypatch.setattr(adapter._LoraProduct, "apply", counted)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> Products:
    return Products(monkeypatch)


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor], share: float) -> None:
    """Each tensor's distance from the expected one is at most this share of its norm."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].float() - value.float()).norm() <= share * value.float().norm(), name


def distance(found: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    """The mean over tensors of the distance from the exact one, as a share of its norm."""
    shares = [(found[name].float() - value).norm() / value.norm() for name, value in exact.items()]
    return float(torch.stack(shares).mean())


def layers(model: nn.Module) -> list[Linear]:
    return [layer for layer in model.modules() if isinstance(layer, Linear)]


def test_forward_and_gradients_are_pefts(products: Products):
    model = adapted()
    expected = outcome(model)
    assert len(expected) == 1 + 2 * 14
    use_lora_products(model)
    assert_near(outcome(model), expected, 1e-5)
    assert products.count == len(layers(model)) == 14


def test_in_bfloat16_the_error_is_about_pefts(products: Products):
    exact = outcome(adapted())
    model = adapted(dtype=torch.bfloat16)
    theirs = outcome(model)
    use_lora_products(model)
    ours = outcome(model)
    assert products.count == 14
    assert distance(ours, exact) < 1.5 * distance(theirs, exact) < 0.1
    assert {name: one.dtype for name, one in ours.items()} == {name: one.dtype for name, one in theirs.items()}


@pytest.mark.slow
def test_gradients_accumulate_over_passes():
    model = adapted()
    use_lora_products(model)
    once = outcome(model)
    for _ in range(2):
        twice = outcome(model, keep=True)
    for name in once.keys() - {"logits"}:
        torch.testing.assert_close(twice[name], 2 * once[name])


def test_no_tokens_have_no_output():
    model = adapted()
    use_lora_products(model)
    layer = layers(model)[0]
    assert layer(torch.zeros(1, 0, 64)).shape == (1, 0, 64)


def test_gradients_of_checkpointed_layers_are_pefts(products: Products):
    model = adapted()
    expected = outcome(model)
    use_lora_products(model)
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    assert_near(outcome(model), expected, 1e-5)
    assert products.count == 2 * 14


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_autocast_the_error_is_about_pefts(dtype: torch.dtype, products: Products):
    def autocast() -> AbstractContextManager:
        return torch.autocast("cpu", dtype=torch.bfloat16)

    exact = outcome(adapted())
    model = adapted(dtype=dtype)
    theirs = outcome(model, autocast)
    use_lora_products(model)
    ours = outcome(model, autocast)
    assert products.count == 14
    assert distance(ours, exact) < 1.5 * distance(theirs, exact) < 0.1
    assert {name: one.dtype for name, one in ours.items()} == {name: one.dtype for name, one in theirs.items()}


def test_a_base_that_is_trained_too_is_left_to_peft(products: Products):
    model = adapted()
    layers(model)[0].base_layer.weight.requires_grad_()
    expected = outcome(model)
    use_lora_products(model)
    assert_near(outcome(model), expected, 1e-5)
    assert products.count == 13


def test_without_its_adapter_the_model_is_the_base(products: Products):
    model = adapted()
    use_lora_products(model)
    with model.disable_adapter():
        found = model(input_ids=TOKENS).logits
    torch.testing.assert_close(found, tiny_model()(input_ids=TOKENS).logits, rtol=0, atol=0)
    assert products.count == 0


def test_several_adapters_are_left_to_peft(products: Products):
    model = adapted()
    model.add_adapter("second", LoraConfig(r=2, target_modules="all-linear"))
    randomize(model)
    tuner: Any = model.base_model
    tuner.set_adapter(["default", "second"])
    expected = outcome(model)
    use_lora_products(model)
    assert_near(outcome(model), expected, 1e-6)
    assert products.count == 0
    model.set_adapter("second")
    outcome(model)
    assert products.count == 14


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modules", "count"), [("all-linear", 14), (["q_proj"], 2)], ids=["a second one", "for some layers"]
)
def test_the_active_adapter_alone_computes_by_products(products: Products, modules: str | list[str], count: int):
    model = adapted()
    model.add_adapter("second", LoraConfig(r=2, lora_alpha=3, target_modules=modules))
    randomize(model)
    model.set_adapter("second")
    expected = outcome(model)
    use_lora_products(model)
    assert_near(outcome(model), expected, 1e-5)
    assert products.count == count


def test_a_merged_adapter_is_left_to_peft(products: Products):
    model = adapted()
    use_lora_products(model)
    apart = model(input_ids=TOKENS).logits
    assert products.count == 14
    model.merge_adapter()
    torch.testing.assert_close(model(input_ids=TOKENS).logits, apart, rtol=1e-4, atol=1e-4)
    assert products.count == 14
    model.unmerge_adapter()
    torch.testing.assert_close(model(input_ids=TOKENS).logits, apart, rtol=1e-4, atol=1e-4)
    assert products.count == 28


@pytest.mark.slow
def test_mixed_batches_are_left_to_peft(products: Products):
    model = adapted()
    expected = model(input_ids=TOKENS, adapter_names=["default", "__base__"]).logits
    use_lora_products(model)
    found = model(input_ids=TOKENS, adapter_names=["default", "__base__"]).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert products.count == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed")
@pytest.mark.parametrize(
    ("kind", "settings", "by_products"),
    [
        ("llama", {"lora_dropout": 0.3}, 0),
        ("llama", {"use_dora": True}, 0),
        ("llama", {"use_rslora": True}, 14),
        ("llama", {"lora_bias": True}, 0),
        ("qwen2", {}, 14),
        ("qwen2", {"bias": "all"}, 8),  # those of query, key and value
    ],
    ids=["dropout", "DoRA", "rank-stabilized", "adapter with bias", "base with biases", "biases that are trained"],
)
def test_other_kinds_of_adapters_agree_with_peft(
    kind: str, settings: dict[str, Any], by_products: int, products: Products
):
    model = adapted(kind, **settings).train()
    expected = outcome(model)
    use_lora_products(model)
    assert_near(outcome(model), expected, 5e-5)
    assert products.count == by_products
