"""Digests of all weights: the matrices that an engine computes with, by the names of a checkpoint."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from workers.digests import WeightsDifferError
from workers.digests.weights import COLUMNS, HeldWeights, SentWeights, columns, differing

STEP = 7
SIZES = {"q_proj": 12, "k_proj": 4, "v_proj": 4}
WIDTH, VOCABULARY, PADDED = 16, 11, 14


class Packed(nn.Module):
    """Stands for a linear layer of vLLM on a CPU: no weight, but a product."""

    def __init__(self, matrix: Tensor, sizes: list[int]):
        super().__init__()
        self.matrix, self.input_size, self.params_dtype = matrix, matrix.shape[1], matrix.dtype
        self.output_partition_sizes = sizes
        self.weight = nn.Parameter(torch.empty(0), requires_grad=False)
        self.quant_method = self

    def cpu_linear(self) -> None:
        """Its presence says that the layer is packed."""

    def apply(self, layer: Any, rows: Tensor, bias: None) -> Tensor:  # type: ignore[override]
        return rows @ layer.matrix.T


class Embedding(nn.Module):
    """Stands for vLLM's, which is padded and, as a head, packed beside its weight."""

    def __init__(self, matrix: Tensor, packed: Tensor | None):
        super().__init__()
        self.weight = nn.Parameter(_padded(matrix), requires_grad=False)
        self.org_vocab_size, self.embedding_dim, self.params_dtype = VOCABULARY, WIDTH, matrix.dtype
        if packed is not None:
            self.packed, self.quant_method, self.cpu_linear = _padded(packed), self, None

    def apply(self, layer: Any, rows: Tensor, bias: None) -> Tensor:  # type: ignore[override]
        return rows @ layer.packed.T


def _padded(matrix: Tensor) -> Tensor:
    return nn.functional.pad(matrix, (0, 0, 0, PADDED - VOCABULARY))


def sent(seed: int = 0) -> dict[str, Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, WIDTH),
        "model.norm.weight": (WIDTH,),
    }
    for name, size in SIZES.items():
        shapes[f"model.layers.0.{name}.weight"], shapes[f"model.layers.0.{name}.bias"] = (size, WIDTH), (size,)
    return {name: torch.randn(shape, generator=drawn) for name, shape in shapes.items()}


def engine(weights: dict[str, Tensor], dtype: torch.dtype, packed_head: Tensor | None = None) -> nn.Module:
    """A model of vLLM's kind with these weights; the head shares the embedding's."""
    kept = {name: values.to(dtype) for name, values in weights.items()}
    model = nn.Module()
    model.packed_modules_mapping = {"qkv_proj": list(SIZES)}  # type: ignore[assignment]
    model.model = nn.Module()
    embedding = kept["model.embed_tokens.weight"]
    model.model.embed_tokens = Embedding(embedding, None)
    model.model.norm = nn.Module()
    model.model.norm.weight = nn.Parameter(kept["model.norm.weight"], requires_grad=False)
    joined = [torch.cat([kept[f"model.layers.0.{name}.{own}"] for name in SIZES]) for own in ("weight", "bias")]
    layer = nn.Module()
    layer.qkv_proj = Packed(joined[0], list(SIZES.values()))
    layer.qkv_proj.bias = nn.Parameter(joined[1], requires_grad=False)
    model.model.layers = nn.ModuleList([layer])
    model.lm_head = Embedding(embedding, embedding if packed_head is None else packed_head.to(dtype))
    return model


def digests(weights: dict[str, Tensor], dtype: torch.dtype = torch.float32, step: int = STEP) -> dict[str, str]:
    noted = SentWeights(step, dtype)
    for name, values in weights.items():
        noted.add(name, values)
    return noted.digests


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_arrived_are_those_that_were_sent(dtype: torch.dtype):
    model = engine(sent(), dtype)
    for step in range(3):
        assert differing(model, digests(sent(), dtype, step), step) == []


@pytest.mark.parametrize("name", list(sent()))
def test_each_weight_that_differs_is_named(name: str):
    changed = sent() | {name: sent()[name] + 1e-6}
    found = differing(engine(sent(), torch.float32), digests(changed), STEP)
    assert found == [name, *(["lm_head.weight"] if "embed" in name else [])]


def test_exchanged_matrices_differ():
    q, k = (f"model.layers.0.{name}.weight" for name in ("k_proj", "v_proj"))
    exchanged = sent() | {q: sent()[k], k: sent()[q]}
    assert differing(engine(exchanged, torch.float32), digests(sent()), STEP) == [q, k]


def test_a_packed_head_that_kept_old_weights_differs():
    old = sent(1)["model.embed_tokens.weight"]
    assert differing(engine(sent(), torch.float32, packed_head=old), digests(sent()), STEP) == ["lm_head.weight"]


def test_a_head_sent_beside_the_embedding_that_it_shares_is_the_same():
    both = sent() | {"lm_head.weight": sent()["model.embed_tokens.weight"]}
    assert differing(engine(sent(), torch.float32), digests(both), STEP) == []


def test_a_weight_that_the_engine_keeps_in_another_form_cannot_be_compared():
    more = sent() | {"model.layers.0.experts.3.weight": torch.ones(2, 2)}
    assert differing(engine(sent(), torch.float32), digests(more), STEP) == [
        "model.layers.0.experts.3.weight (not found in the engine)"
    ]


def test_two_zeros_are_one_value():
    zeros = {name: torch.zeros_like(values) for name, values in sent().items()}
    assert digests(zeros) == digests({name: -values for name, values in zeros.items()})


def test_each_step_compares_other_columns_of_a_wide_matrix():
    assert columns(1, 3).sort().values.tolist() == [0, 1, 2]
    chosen = [columns(step, 1000) for step in range(20)]
    assert all(len(set(each.tolist())) == COLUMNS for each in chosen)
    assert len({int(one) for each in chosen for one in each}) > 15 * COLUMNS


def test_an_engine_with_old_weights_ends_the_run_with_one_message():
    held = HeldWeights()
    model = engine(sent(), torch.float32)
    held.model_runner = type("Runner", (), {"get_model": lambda self: model})()
    held.require_weights(digests(sent()), STEP)
    with pytest.raises(WeightsDifferError) as refused:
        held.require_weights(digests(sent(1)), STEP)
    message = str(refused.value)
    assert "after step 7 the engine computes with other weights than were trained (9 of 8: " in message
    assert "start the same run again" in message
    assert "\n" not in message
