"""Sequences packed into one row attend as each of them does alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from transformers import PreTrainedModel

from tests.workers.cpu.models import VOCABULARY, tiny_model
from workers.cpu.attention import NAME, packed_attention, register_packed_attention

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def positions_of(lengths: list[int]) -> Tensor:
    return torch.cat([torch.arange(length) for length in lengths])[None]


def models(kind: str, dtype: torch.dtype = torch.float32) -> tuple[PreTrainedModel, PreTrainedModel]:
    """The same model twice: with our attention, and with transformers' own in float32."""
    register_packed_attention()
    ours = tiny_model(kind, dtype, attn_implementation=NAME)
    theirs = tiny_model(kind, attn_implementation="eager")
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def passes(ours: PreTrainedModel, theirs: PreTrainedModel, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Logits (tokens, vocabulary) of packed sequences and of each alone, after a backward pass through both."""
    generator = torch.Generator().manual_seed(sum(lengths))
    tokens = torch.randint(VOCABULARY, (sum(lengths),), generator=generator)
    weights = torch.randn(sum(lengths), VOCABULARY, generator=generator)
    packed = ours(input_ids=tokens[None], position_ids=positions_of(lengths), use_cache=False).logits[0].float()
    alone = torch.cat([theirs(input_ids=part[None], use_cache=False).logits[0] for part in tokens.split(lengths)])
    for logits in (packed, alone):
        (logits * weights).sum().div(len(tokens)).backward()
    return packed.detach(), alone.detach()


def gradients(model: nn.Module) -> Tensor:
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return torch.cat([gradient.float().flatten() for gradient in found])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("lengths", [[5, 1, 9, 3], [1, 1, 1], [7], [1]], ids=str)
def test_packed_sequences_equal_each_alone(kind: str, lengths: list[int]):
    ours, theirs = models(kind)
    packed, alone = passes(ours, theirs, lengths)
    torch.testing.assert_close(packed, alone, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients(ours), gradients(theirs), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@settings(max_examples=10)
@given(lengths=LENGTHS)
def test_packed_sequences_equal_each_alone_at_any_lengths(lengths: list[int]):
    packed, alone = passes(*models("llama"), lengths)
    torch.testing.assert_close(packed, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_packed_sequences_in_bfloat16_are_near_each_alone(kind: str):
    ours, theirs = models(kind, torch.bfloat16)
    packed, alone = passes(ours, theirs, [5, 1, 9, 3])
    assert (packed - alone).norm() < 0.03 * alone.norm()
    assert cosine_similarity(gradients(ours), gradients(theirs), dim=0) > 0.99


def test_a_sequence_does_not_depend_on_those_packed_with_it():
    ours, _ = models("llama")
    tokens, positions = torch.arange(9)[None], positions_of([4, 5])
    changed = tokens.clone()
    changed[0, :4] += 20
    before, after = (ours(input_ids=ids, position_ids=positions).logits[0] for ids in (tokens, changed))
    torch.testing.assert_close(before[4:], after[4:], rtol=0, atol=0)
    assert (before[:4] - after[:4]).abs().max() > 0.1


def states(rows: int = 1, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    query, key, value = (torch.randn(rows, heads, 6, 8).to(dtype) for heads in (4, 2, 2))
    return query, key, value


def test_the_formula_of_attention_with_scaling():
    query, key, value = states()
    found, weights = packed_attention(nn.Module(), query, key, value, None, scaling=0.3, position_ids=positions_of([6]))
    scores = (query @ key.repeat_interleave(2, dim=1).mT * 0.3).masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)
    expected = scores.softmax(dim=-1) @ value.repeat_interleave(2, dim=1)
    torch.testing.assert_close(found, expected.transpose(1, 2))
    assert weights is None


def test_the_result_has_the_queries_precision():
    query, key, value = states(dtype=torch.bfloat16)
    found, _ = packed_attention(nn.Module(), query, key, value, None, position_ids=positions_of([2, 4]))
    assert found.dtype == torch.bfloat16
    assert found.shape == (1, 6, 4, 8)


@pytest.mark.parametrize(
    ("rows", "mask", "positions"),
    [
        (2, None, positions_of([6])),
        (1, torch.ones(1, 6), positions_of([6])),
        (1, None, None),
    ],
    ids=["rows", "mask", "no positions"],
)
def test_a_padded_batch_is_refused(rows: int, mask: Tensor | None, positions: Tensor | None):
    message = f"a batch of {rows} rows: set actor_rollout_ref.model.use_remove_padding=true"
    with pytest.raises(ValueError, match=message):
        packed_attention(nn.Module(), *states(rows), mask, position_ids=positions)


def test_a_sequence_beyond_the_sliding_window_is_refused():
    def attend(lengths: list[int]) -> Tensor:
        return packed_attention(nn.Module(), *states(), None, position_ids=positions_of(lengths), sliding_window=4)[0]

    assert attend([4, 2]).shape == (1, 6, 4, 8)
    with pytest.raises(ValueError, match="a sequence of 5 tokens exceeds the model's 4"):
        attend([1, 5])


def test_a_model_refuses_several_rows():
    ours, _ = models("llama")
    with pytest.raises(ValueError, match="a batch of 2 rows"):
        ours(input_ids=torch.zeros(2, 3, dtype=torch.long))
