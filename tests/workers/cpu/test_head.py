"""Log-probabilities in blocks are those of the full logits; the positions are those whose outputs verl's losses use."""

from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict
from torch import Tensor
from torch.nn.functional import cosine_similarity
from transformers import PreTrainedModel
from verl.models.transformers.dense_common import forward_with_torch_backend
from verl.utils import tensordict_utils as tu
from verl.utils.experimental.torch_functional import FusedLinearForPPO
from verl.workers.utils.losses import sft_loss
from verl.workers.utils.padding import no_padding_2_padding

from tests.workers.cpu.models import tiny_model
from workers.cpu import head
from workers.cpu.attention import NAME, register_packed_attention
from workers.cpu.head import predicting_positions, token_statistics, use_fast_head

WIDTH, ENTRIES = 16, 53
USED = {"both": (1.0, 1.0), "log-probabilities": (1.0, 0.0), "entropies": (0.0, 1.0)}


def problem(rows: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, the head's weight and labels."""
    generator = torch.Generator().manual_seed(rows)
    hidden = torch.randn(rows, WIDTH, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(ENTRIES, WIDTH, generator=generator).mul(0.5).to(dtype).requires_grad_()
    return hidden, weight, torch.randint(ENTRIES, (rows,), generator=generator)


def reference(hidden: Tensor, weight: Tensor, labels: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    log_probs = (hidden.double() @ weight.double().T / temperature).log_softmax(dim=1)
    return log_probs.gather(1, labels[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(dim=1)


def results(statistics: Any, inputs: tuple[Tensor, Tensor, Tensor], temperature: float, used: str) -> list[Tensor]:
    """Values, and gradients of hidden states and weight by a weighted sum of the values that are used."""
    hidden, weight, _ = inputs
    values = statistics(*inputs, temperature)
    scales = torch.linspace(-1, 1, len(hidden))
    total = sum(
        (share * scales * value).sum() for share, value in zip(USED[used], values, strict=True) if share
    )  # an unused value has no gradient at all
    assert isinstance(total, Tensor)
    gradients = torch.autograd.grad(total, (hidden, weight))
    return [*(value.detach() for value in values), *gradients]


def assert_equal(found: list[Tensor], expected: list[Tensor], tolerance: float = 2e-5) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=tolerance, atol=tolerance)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "BLOCK", 4 * ENTRIES)


@pytest.mark.slow
@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("temperature", [1.0, 0.6, 3.0])
@pytest.mark.parametrize("rows", [1, 4, 5, 11])
@pytest.mark.usefixtures("small_blocks")
def test_values_and_gradients_are_those_of_full_logits(rows: int, temperature: float, used: str):
    inputs = problem(rows)
    assert_equal(results(token_statistics, inputs, temperature, used), results(reference, inputs, temperature, used))


@pytest.mark.parametrize("used", USED)
def test_values_and_gradients_are_those_of_verls_fused_function(used: str):
    inputs = problem(11)
    fused = FusedLinearForPPO()
    assert_equal(results(token_statistics, inputs, 0.7, used), results(fused, inputs, 0.7, used))


@pytest.mark.parametrize("block", [1, ENTRIES - 1, 2 * ENTRIES, 5 * ENTRIES + 1, 1 << 22])
def test_the_size_of_blocks_does_not_matter(block: int, monkeypatch: pytest.MonkeyPatch):
    inputs = problem(11)
    whole = results(token_statistics, inputs, 0.7, "both")
    monkeypatch.setattr(head, "BLOCK", block)
    assert_equal(results(token_statistics, inputs, 0.7, "both"), whole, 1e-6)


@pytest.mark.slow
@given(rows=st.integers(0, 40), vocabulary=st.integers(1, 60), size=st.integers(1, 200))
def test_blocks_hold_each_row_once_and_at_most_their_size(rows: int, vocabulary: int, size: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head, "BLOCK", size)
        blocks = [list(range(rows))[block] for block in head._blocks(rows, vocabulary)]
    assert [*chain(*blocks)] == list(range(rows))
    assert all(0 < len(block) <= max(1, size // vocabulary) for block in blocks)


@pytest.mark.slow
@settings(max_examples=50)
@given(shift=st.floats(-1e3, 1e3), rows=st.integers(1, 6))
def test_a_shift_of_all_logits_changes_nothing(shift: float, rows: int):
    hidden, weight, labels = problem(rows)
    one, shifts = torch.ones(rows, 1), torch.full((ENTRIES, 1), shift)
    shifted = token_statistics(torch.cat([hidden, one], dim=1), torch.cat([weight, shifts], dim=1), labels)
    plain = token_statistics(hidden, weight, labels)
    assert_equal([*shifted], [*plain], 1e-2)  # logits near a thousand have steps of 6e-5 in float32


def test_bfloat16_is_near_float32_and_statistics_are_float32():
    inputs = problem(11, torch.bfloat16)
    found, expected = results(token_statistics, inputs, 0.7, "both"), results(reference, inputs, 0.7, "both")
    assert [one.dtype for one in found] == [torch.float32] * 2 + [torch.bfloat16] * 2
    assert_equal(found[:2], expected[:2], 0.05)
    for ours, theirs in zip(found[2:], expected[2:], strict=True):
        assert cosine_similarity(ours.float().flatten(), theirs.float().flatten(), dim=0) > 0.999


def test_under_autocast_values_and_gradients_are_near_those_in_float32():
    inputs = problem(11)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        log_probs, entropies = token_statistics(*inputs, 0.7)
    assert log_probs.dtype == entropies.dtype == torch.float32
    found = torch.autograd.grad((log_probs + entropies).sum(), inputs[:2])
    exact = reference(*inputs, 0.7)
    assert_equal([log_probs, entropies], [*exact], 0.05)
    for ours, theirs in zip(found, torch.autograd.grad((exact[0] + exact[1]).sum(), inputs[:2]), strict=True):
        assert ours.dtype == torch.float32
        assert cosine_similarity(ours.flatten(), theirs.flatten(), dim=0) > 0.999


def test_no_rows_have_no_statistics_and_no_gradient():
    log_probs, entropies, d_hidden, d_weight = results(token_statistics, problem(0), 1.0, "both")
    assert log_probs.shape == entropies.shape == (0,)
    assert d_hidden.shape == (0, WIDTH)
    assert torch.equal(d_weight, torch.zeros(ENTRIES, WIDTH))


def test_a_frozen_head_gets_no_gradient():
    hidden, weight, labels = problem(5)
    log_probs, _ = token_statistics(hidden, weight.detach(), labels)
    log_probs.sum().backward()
    expected, _ = reference(hidden, weight.detach(), labels, 1.0)
    torch.testing.assert_close(hidden.grad, torch.autograd.grad(expected.sum(), hidden)[0])
    assert weight.grad is None


def jagged(rows: list[list[int]]) -> Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(row, dtype=torch.long) for row in rows], layout=torch.jagged)


PROMPTS, RESPONSES = [[1, 2, 3], [4], [5, 6]], [[11, 12], [13, 14, 15], [16]]
SEQUENCES = [prompt + response for prompt, response in zip(PROMPTS, RESPONSES, strict=True)]
PACKED = torch.tensor([*chain(*SEQUENCES)])
"""1 2 3 11 12 | 4 13 14 15 | 5 6 16"""


def nested_batch() -> TensorDict:
    fields = {"input_ids": jagged(SEQUENCES), "prompts": jagged(PROMPTS), "responses": jagged(RESPONSES)}
    return TensorDict(fields, batch_size=3)


def padded_batch() -> TensorDict:
    """Prompts padded on the left to four tokens, responses on the right to five."""
    rows = zip(PROMPTS, RESPONSES, strict=True)
    mask = [[0] * (4 - len(p)) + [1] * (len(p) + len(r)) + [0] * (5 - len(r)) for p, r in rows]
    fields = {
        "input_ids": jagged(SEQUENCES),
        "prompts": torch.tensor([[0] * (4 - len(prompt)) + prompt for prompt in PROMPTS]),
        "responses": torch.tensor([response + [0] * (5 - len(response)) for response in RESPONSES]),
        "attention_mask": torch.tensor(mask),
    }
    return TensorDict(fields, batch_size=3)


def demonstrations(masks: list[list[int]]) -> TensorDict:
    return TensorDict({"input_ids": jagged(SEQUENCES), "loss_mask": jagged(masks)}, batch_size=3)


@pytest.mark.parametrize("batch", [nested_batch(), padded_batch()], ids=["nested", "padded"])
def test_the_outputs_that_verl_slices_are_those_at_the_positions(batch: TensorDict):
    positions = predicting_positions(batch)
    assert positions.tolist() == [2, 3, 5, 6, 7, 10]
    predicted = torch.zeros(len(PACKED), dtype=torch.long).index_put((positions,), PACKED[positions + 1])
    sliced = no_padding_2_padding(predicted, batch)
    assert [row[row > 0].tolist() for row in sliced] == RESPONSES


def test_the_outputs_that_verls_sft_loss_sums_are_those_at_the_positions():
    batch = demonstrations([[0, 0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1]])
    positions = predicting_positions(batch)
    assert positions.tolist() == [2, 3, 5, 7, 10]
    tu.assign_non_tensor(batch, dp_size=1, batch_num_tokens=1)
    log_probs = torch.nested.nested_tensor_from_jagged(2.0 ** torch.arange(12), batch["input_ids"].offsets())
    config: Any = None
    loss, _ = sft_loss(config, {"log_probs": log_probs}, batch)
    assert float(-loss) == sum(2.0**position for position in positions.tolist())


SEQUENCE = st.tuples(st.integers(1, 5), st.integers(0, 5))


@pytest.mark.slow
@given(lengths=st.lists(SEQUENCE, min_size=1, max_size=5))
def test_each_position_comes_before_a_response_token(lengths: list[tuple[int, int]]):
    prompts, responses = ([list(range(one)) for one in part] for part in zip(*lengths, strict=True))
    whole = [[0] * len(p) + [1] * len(r) for p, r in zip(prompts, responses, strict=True)]
    fields = {"input_ids": jagged(whole), "prompts": jagged(prompts), "responses": jagged(responses)}
    sft = {"input_ids": jagged(whole), "loss_mask": jagged(whole)}
    expected = [index - 1 for index, generated in enumerate(chain(*whole)) if generated]
    for batch in (fields, sft):
        assert predicting_positions(TensorDict(batch, batch_size=len(whole))).tolist() == expected


def packed_inputs() -> dict[str, Any]:
    """What verl's engine passes to a model with fused kernels."""
    return {
        "input_ids": PACKED[None],
        "position_ids": torch.cat([torch.arange(len(one)) for one in SEQUENCES])[None],
        "shift_labels": PACKED.roll(-1)[None],
        "temperature": 0.8,
        "return_dict": True,
        "use_cache": False,
    }


def model_gradient(model: PreTrainedModel) -> Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_a_models_statistics_are_verls_at_the_positions_and_zero_elsewhere(tied: bool):
    register_packed_attention()
    ours, theirs = (tiny_model(attn_implementation=NAME, tie_word_embeddings=tied) for _ in range(2))
    use_fast_head(ours)
    batch = nested_batch()
    positions = predicting_positions(batch)
    found = ours(**packed_inputs(), positions=positions)
    expected: Any = forward_with_torch_backend(theirs, **packed_inputs())
    elsewhere = torch.ones(len(PACKED), dtype=torch.bool).index_fill(0, positions, False)
    for name in ("log_probs", "entropy"):
        assert found[name].shape == (1, len(PACKED))
        torch.testing.assert_close(found[name][0, positions], expected[name][0, positions], rtol=1e-5, atol=1e-5)
        assert not found[name][0, elsewhere].any()
        no_padding_2_padding(found[name][0], batch).sum().backward(retain_graph=True)
        no_padding_2_padding(expected[name][0], batch).sum().backward(retain_graph=True)
    torch.testing.assert_close(model_gradient(ours), model_gradient(theirs), rtol=1e-4, atol=1e-5)
