"""Tokens and characters: every token belongs to one step or to none, however the tokenizer splits a character."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.micro.model import make_tokenizer
from rewards.counterfactual.tokens import _by_decoding, token_offsets, token_steps
from tests.rewards.made_tokenizers import ADDED, MAKERS, ROLE, TEXT, made

pytestmark = pytest.mark.slow

TOKENIZER = make_tokenizer()
LETTERS = "abdefhnort019()[]=+,.:'!?_é漢😀 \n\t"
texts = st.one_of(st.text(alphabet=LETTERS, max_size=40), st.lists(st.sampled_from(TEXT), max_size=3).map(" ".join))
every_kind = pytest.mark.parametrize("kind", MAKERS)
# Encoding with the one in Python takes long, and it lists every special token.
every_fast_kind = pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "bytes in Python"])


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


def _check_cover(tokenizer, ids):
    """The law of all tokenizers: a span for each token, in order, and every character in one."""
    offsets = token_offsets(tokenizer, ids)
    text = tokenizer.decode(ids, skip_special_tokens=True)
    assert len(offsets) == len(ids)
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    assert [start for start, _ in offsets] == sorted(start for start, _ in offsets)
    assert {at for start, end in offsets for at in range(start, end)} == set(range(len(text)))
    return text, offsets


@every_kind
@given(data=st.data())
@settings(max_examples=25)
def test_any_tokens_of_any_tokenizer_cover_their_text(kind: str, data: st.DataObject) -> None:
    tokenizer = made(kind)
    _check_cover(tokenizer, data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=40)))


@given(st.lists(st.integers(0, 255), max_size=40))
@settings(max_examples=60, deadline=None)
def test_bytes_that_are_not_text_are_covered_too(ids: list[int]) -> None:
    _check_cover(TOKENIZER, ids)


@every_fast_kind
@given(text=texts, data=st.data())
@settings(max_examples=25)
def test_special_tokens_anywhere_have_no_characters_whether_listed_or_not(
    kind: str, text: str, data: st.DataObject
) -> None:
    tokenizer = made(kind)
    unlisted = tokenizer.convert_tokens_to_ids(ROLE)
    plain = tokenizer.encode(text, add_special_tokens=False)
    ids = list(plain)
    for at in data.draw(st.lists(st.integers(0, len(plain)), max_size=4)):
        ids.insert(at, data.draw(st.sampled_from([unlisted, tokenizer.eos_token_id])))
    _, offsets = _check_cover(tokenizer, ids)
    specials = {unlisted, tokenizer.eos_token_id}
    assert all(start == end for token, (start, end) in zip(ids, offsets, strict=True) if token in specials)
    # Special tokens change nothing of the others.
    kept = [offset for token, offset in zip(ids, offsets, strict=True) if token not in specials]
    assert kept == token_offsets(tokenizer, [token for token in ids if token not in specials])


@every_fast_kind
def test_a_special_token_that_the_tokenizer_does_not_list_is_no_reason_to_fail(kind: str) -> None:
    tokenizer = made(kind)
    unlisted = tokenizer.convert_tokens_to_ids(ROLE)
    assert unlisted not in tokenizer.all_special_ids
    _check_cover(tokenizer, [*tokenizer.encode("the house", add_special_tokens=False), unlisted])


@every_fast_kind
@given(text=texts)
@settings(max_examples=25)
def test_a_token_covers_its_own_letters(kind: str, text: str) -> None:
    tokenizer = made(kind)
    ids = tokenizer.encode(f"{text} {ADDED} {text}", add_special_tokens=False)
    decoded, offsets = _check_cover(tokenizer, ids)
    for token, (start, end) in zip(ids, offsets, strict=True):
        alone = tokenizer.decode([token], skip_special_tokens=True).removeprefix("##").strip()
        if "\ufffd" not in alone:
            assert alone in decoded[start:end]


def _spans_of_bytes(text: str, sizes: list[int]) -> list[tuple[int, int]]:
    """The characters that each token shares, for tokens of the given numbers of bytes."""
    owner = [at for at, character in enumerate(text) for _ in character.encode()]
    edges = [sum(sizes[:index]) for index in range(len(sizes) + 1)]
    return [(owner[start], owner[end - 1] + 1) for start, end in pairwise(edges)]


@pytest.mark.parametrize("kind", ["byte-level", "byte-level, trimmed offsets"])
@given(chunks=st.lists(st.tuples(texts, st.booleans()), max_size=4))
@settings(max_examples=50)
def test_tokens_that_encoding_would_not_give_have_the_characters_of_their_bytes(kind: str, chunks: list) -> None:
    """A model may write any part of a text byte by byte; in a byte-level piece every letter is a byte."""
    tokenizer, ids = made(kind), []
    for text, whole in chunks:
        found = tokenizer.encode(text, add_special_tokens=False)
        pieces = tokenizer.convert_ids_to_tokens(found)
        ids += found if whole else tokenizer.convert_tokens_to_ids([letter for piece in pieces for letter in piece])
    text = "".join(text for text, _ in chunks)
    expected = _spans_of_bytes(text, list(map(len, tokenizer.convert_ids_to_tokens(ids))))
    assert token_offsets(tokenizer, ids) == expected
    assert _by_decoding(tokenizer, text, ids) == expected


@given(text=texts.filter(lambda text: not text.startswith(" ")))
@settings(max_examples=50)
def test_pieces_of_sentencepiece_have_the_characters_of_their_bytes(text: str) -> None:
    tokenizer = made("byte fallback")
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = tokenizer.convert_ids_to_tokens(ids)
    sizes = [1 if piece.startswith("<0x") else len(piece) for piece in pieces]
    # Of the blank that is put before a text nothing is left: characters move by one, to nothing less than 0.
    expected = [(max(start - 1, 0), end - 1) for start, end in _spans_of_bytes(" " + text, sizes)] if text else []
    assert _by_decoding(tokenizer, text, ids) == expected


def test_blanks_that_are_cleaned_up_belong_to_no_other_word() -> None:
    tokenizer = made("words, blanks cleaned up")
    ids = tokenizer.convert_tokens_to_ids(["I", "do", "n't", ",", "you", "'ve", "."])
    assert tokenizer.decode(ids) == "I don't, you've."
    assert token_offsets(tokenizer, ids) == [(0, 1), (1, 4), (4, 7), (7, 8), (8, 12), (12, 15), (15, 16)]


@pytest.mark.parametrize("kind", ["byte-level", "byte fallback"])
@given(text=texts, cut=st.integers(0, 6))
@settings(max_examples=25)
def test_a_truncated_answer_is_covered_and_what_came_before_the_cut_stays(kind: str, text: str, cut: int) -> None:
    tokenizer = made(kind)
    ids = tokenizer.encode(text + "a漢😀", add_special_tokens=False)
    whole = _by_decoding(tokenizer, tokenizer.decode(ids), ids)
    kept = len(ids) - cut
    decoded, _ = _check_cover(tokenizer, ids[:kept])
    offsets = _by_decoding(tokenizer, decoded, ids[:kept])
    within = [at for at, (_, end) in enumerate(whole[:kept]) if end <= len(text)]
    assert [offsets[at] for at in within] == [whole[at] for at in within]


def test_bytes_of_a_character_that_never_ends_share_what_stands_for_it() -> None:
    ids = TOKENIZER.encode("a漢")[:-1]
    assert TOKENIZER.decode(ids) == "a\ufffd"
    assert token_offsets(TOKENIZER, ids) == [(0, 1), (1, 2), (1, 2)]
    assert token_offsets(TOKENIZER, [*ids, *TOKENIZER.encode("b")]) == [(0, 1), (1, 2), (1, 2), (2, 3)]


@pytest.mark.parametrize("kind", ["byte-level", "byte fallback", "word pieces, blanks cleaned up"])
def test_the_work_grows_with_the_tokens_and_not_with_their_square(kind: str, monkeypatch) -> None:
    tokenizer = made(kind)
    ids = tokenizer.encode(" ".join(TEXT) * 10, add_special_tokens=False)
    text, decode, seen = tokenizer.decode(ids), tokenizer.decode, []

    def counted(tokens, **options):
        seen.append(len(tokens))
        return decode(tokens)

    monkeypatch.setattr(tokenizer, "decode", counted)
    offsets = _by_decoding(tokenizer, text, ids)
    assert offsets[-1][1] == len(text)
    assert sum(seen) < 8 * len(ids)
