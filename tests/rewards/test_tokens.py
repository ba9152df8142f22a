"""Tokens and characters: every token belongs to one step or to none, whatever the tokenizer makes of a character."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.micro_model import make_tokenizer
from rewards.tokens import _by_decoding, token_offsets, token_steps

TOKENIZER = make_tokenizer()


def test_a_token_has_the_step_that_shares_most_of_its_characters() -> None:
    spans = [(0, 5), (6, 12), (20, 25)]
    offsets = [
        (0, 0),  # a special token
        (0, 3),
        (3, 6),  # the end of step 0 and the line break
        (4, 8),  # 1 character of step 0, 2 of step 1
        (5, 6),  # the line break alone
        (11, 21),  # 1 and 1: the earlier
        (12, 20),  # between steps
        (0, 0),  # a special token in the middle
        (24, 30),
        (30, 31),  # past the last step
    ]
    assert token_steps(offsets, spans).tolist() == [-1, 0, 0, 1, -1, 1, -1, -1, 2, -1]
    assert token_steps([(0, 4)], []).tolist() == [-1]
    assert token_steps([], spans).shape == (0,)


@given(st.text(alphabet="aé漢😀 \n", max_size=40), st.lists(st.integers(0, 40), max_size=8))
@settings(max_examples=60, deadline=None)
def test_every_byte_token_of_a_character_has_the_step_of_that_character(text: str, cuts: list[int]) -> None:
    bounds = sorted({min(cut, len(text)) for cut in cuts})
    spans = list(pairwise(bounds))[::2]
    # A byte-level tokenizer gives each byte of a character the offsets of the whole character.
    offsets = [(at, at + 1) for at, character in enumerate(text) for _ in character.encode()]
    expected = [next((k for k, (low, high) in enumerate(spans) if low <= at < high), -1) for at, _ in offsets]
    assert token_steps(offsets, spans).tolist() == expected


def test_spans_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="must not overlap"):
        token_steps([(0, 1)], [(0, 3), (2, 4)])


def test_special_tokens_have_no_characters() -> None:
    end, role = TOKENIZER.eos_token_id, TOKENIZER.convert_tokens_to_ids("<|tool|>")
    ids = [*TOKENIZER.encode("ab"), role, *TOKENIZER.encode("c"), end, TOKENIZER.pad_token_id]
    assert token_offsets(TOKENIZER, ids) == [(0, 1), (1, 2), (2, 2), (2, 3), (3, 3), (3, 3)]


@given(st.text(alphabet="aé漢😀 \n", max_size=30))
@settings(max_examples=60, deadline=None)
def test_both_ways_agree_and_every_token_of_a_character_has_that_character(text: str) -> None:
    ids = TOKENIZER.encode(text)
    expected = [(at, at + 1) for at, character in enumerate(text) for _ in character.encode()]
    assert token_offsets(TOKENIZER, ids) == expected
    assert _by_decoding(TOKENIZER, text, ids) == expected


@given(st.lists(st.integers(0, 255), max_size=40))
@settings(max_examples=60, deadline=None)
def test_bytes_that_are_no_text_are_covered_too(ids: list[int]) -> None:
    offsets = token_offsets(TOKENIZER, ids)
    text = TOKENIZER.decode(ids, skip_special_tokens=True)
    assert len(offsets) == len(ids)
    assert all(start <= end for start, end in offsets)
    assert [start for start, _ in offsets] == sorted(start for start, _ in offsets)
    assert {at for start, end in offsets for at in range(start, end)} == set(range(len(text)))


def test_a_truncated_character_at_the_end_is_covered() -> None:
    ids = TOKENIZER.encode("a漢")[:-1]
    offsets = token_offsets(TOKENIZER, ids)
    assert offsets[0] == (0, 1)
    assert {end for _, end in offsets[1:]} <= {2, len(TOKENIZER.decode(ids))}
