"""Equal prefixes are computed once, and nothing else changes."""

from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.workers.cpu.models import VOCABULARY, tiny_model
from workers.cpu import head
from workers.cpu.attention import NAME, register_packed_attention
from workers.cpu.prefixes import Branches, SharedPrefixes, separate_sequences, shared_prefixes

pytestmark = pytest.mark.slow

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=8)
"""Of three tokens, so that many begin alike."""


def packed(sequences: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Tokens and positions, both (T)."""
    positions = [torch.arange(len(one)) for one in sequences]
    return torch.tensor([*chain(*sequences)]), torch.cat(positions)


def test_two_samples_of_a_prompt_by_hand():
    found = shared_prefixes(*packed([[7, 8, 1, 2], [7, 8, 3], [9]]))
    assert found.kept.tolist() == [0, 1, 2, 3, 6, 7]
    assert found.rows.tolist() == [0, 1, 2, 3, 0, 1, 4, 5]
    assert found.branches.rows.tolist() == [0, 1, 2, 3, 0, 1, 4, 5]
    assert (found.branches.before, found.branches.own) == ([0, 2, 0], [4, 1, 1])


def test_a_repeated_sequence_and_one_that_begins_another_have_no_rows():
    found = shared_prefixes(*packed([[1, 2, 3], [1, 2, 3], [1, 2]]))
    assert found.rows.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert (found.branches.before, found.branches.own) == ([0], [3])


@given(sequences=SEQUENCES)
def test_rows_are_the_distinct_prefixes(sequences: list[list[int]]):
    prefixes = [tuple(one[: end + 1]) for one in sequences for end in range(len(one))]
    found = shared_prefixes(*packed(sequences))
    assert [prefixes[index] for index in found.kept] == [*dict.fromkeys(prefixes)]
    assert [prefixes[found.kept[row]] for row in found.rows] == prefixes


@given(sequences=SEQUENCES)
def test_branches_are_whole_sequences_and_their_own_rows_are_all_rows(sequences: list[list[int]]):
    tokens, positions = packed(sequences)
    found = shared_prefixes(tokens, positions)
    branches = found.branches
    parts = branches.rows.split(branches.lengths)
    assert all(tokens[found.kept[part]].tolist() in sequences for part in parts)
    ends = [part[before:] for part, before in zip(parts, branches.before, strict=True)]
    assert torch.cat(ends).tolist() == [*range(len(found.kept))]


@given(sequences=SEQUENCES)
def test_sequences_with_unlike_first_tokens_share_nothing(sequences: list[list[int]]):
    tokens, positions = packed([[10 + number, *one] for number, one in enumerate(sequences)])
    found, separate = shared_prefixes(tokens, positions), separate_sequences(positions)
    assert found.kept.tolist() == found.rows.tolist() == separate.rows.tolist() == [*range(len(tokens))]
    assert found.branches.own == separate.own == [1 + len(one) for one in sequences]
    assert not any(separate.before)


def not_shared(_: Tensor, position_ids: Tensor) -> SharedPrefixes:
    every = torch.arange(len(position_ids))
    return SharedPrefixes(every, every, separate_sequences(position_ids))


def statistics(sequences: list[list[int]], kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities and entropies (T) of a model, and the gradient of their weighted sum."""
    register_packed_attention()
    model = tiny_model(kind, attn_implementation=NAME)
    head.use_fast_head(model)
    tokens, positions = packed(sequences)
    found = model(
        input_ids=tokens[None], position_ids=positions[None], shift_labels=tokens.roll(-1)[None],
        positions=torch.nonzero(positions.roll(-1)).flatten(), temperature=0.9, use_cache=False,
    )  # fmt: skip
    weights = torch.linspace(-1, 1, len(tokens))
    (found.log_probs[0] * weights + found.entropy[0] * weights.flip(0)).sum().backward()
    gradient = torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])
    return found.log_probs[0].detach(), found.entropy[0].detach(), gradient


def group(prompt: int, answers: list[int], seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)

    def tokens(size: int) -> list[int]:
        return torch.randint(VOCABULARY, (size,), generator=generator).tolist()

    return [[*start, *tokens(size)] for start in [tokens(prompt)] for size in answers]


GROUPS = {
    "a group": group(5, [3, 2, 4], 0),
    "two groups in turn": [one for pair in zip(group(4, [3, 1], 1), group(6, [2, 2], 2), strict=True) for one in pair],
    "a repeated sample": group(3, [4], 3) * 2,
    "one that ends in another": [[1, 2, 3, 4], [1, 2, 3], [1, 2, 5]],
}


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("sequences", GROUPS.values(), ids=GROUPS)
def test_a_models_statistics_and_gradients_do_not_change(
    kind: str, sequences: list[list[int]], monkeypatch: pytest.MonkeyPatch
):
    shared = statistics(sequences, kind)
    seen: list[Branches] = []
    real = shared_prefixes

    def counted(input_ids: Tensor, position_ids: Tensor) -> SharedPrefixes:
        found = real(input_ids, position_ids)
        seen.append(found.branches)
        return found

    monkeypatch.setattr(head, "shared_prefixes", counted)
    statistics(sequences, kind)
    assert sum(seen[0].own) < sum(map(len, sequences))  # something is shared
    monkeypatch.setattr(head, "shared_prefixes", not_shared)
    for ours, theirs in zip(shared, statistics(sequences, kind), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # two threads beside another test take minutes
def test_gradients_of_two_threads_are_the_same_each_time():
    """Each of 64 answers adds to the row of the prompt's last token: in one order, whatever the threads do."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        _, _, first = statistics(group(4, [40] * 64, 0), "llama")
        for _ in range(30):
            assert torch.equal(statistics(group(4, [40] * 64, 0), "llama")[2], first)
    finally:
        torch.set_num_threads(before)
