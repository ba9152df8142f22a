"""Alignment of tokens with characters of a response, and so with its steps.

A token is placed by the text that decoding it adds. This works for any tokenizer: with characters whose bytes span
several tokens, spaces that depend on neighbouring tokens, and spaces that are cleaned up after later tokens.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

# Placeholder of bytes that are not, or not yet, a character.
_UNDECODED = "\ufffd"
# A character has at most four bytes. A token still open after this many tokens is placed by decoding the whole prefix.
_PATIENCE = 4

Offset = tuple[int, int]


def token_offsets(tokenizer: Any, token_ids: Sequence[int]) -> list[Offset]:
    """Characters [start, end) of each token in `tokenizer.decode(token_ids, skip_special_tokens=True)`.

    If a character takes several tokens, each of them has that character; a token that decoding skips has none
    (start = end). Starts never decrease, and together the tokens cover the text. Pass the generated ids: a model need
    not generate the tokens that encoding its text would give.
    """
    text = tokenizer.decode(token_ids, skip_special_tokens=True)
    left_out = _left_out(tokenizer, token_ids)
    plain = [token for token in token_ids if token not in left_out]
    offsets = _by_encoding(tokenizer, text, plain) or _by_decoding(tokenizer, text, plain)
    place = len(text)
    result = []
    for token in reversed(token_ids):
        offset = (place, place) if token in left_out else offsets.pop()
        place = offset[0]
        result.append(offset)
    return result[::-1]


def _left_out(tokenizer: Any, token_ids: Sequence[int]) -> set[int]:
    """The tokens that `skip_special_tokens` drops, determined by decoding them.

    A token can be marked special without being in `all_special_ids`, and only some tokenizers drop such a token.
    """
    marked = set(tokenizer.all_special_ids).union(getattr(tokenizer, "added_tokens_decoder", ()))
    return {
        token
        for token in marked.intersection(token_ids)
        if tokenizer.decode([token]) and not tokenizer.decode([token], skip_special_tokens=True)
    }


def _by_encoding(tokenizer: Any, text: str, plain: list[int]) -> list[Offset] | None:
    """The tokenizer's own offsets, if encoding the text gives exactly these tokens: the usual case, and a fast one.

    None also if they skip characters: some tokenizers trim spaces.
    """
    if not getattr(tokenizer, "is_fast", False):
        return None
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    offsets = [tuple(pair) for pair in encoded["offset_mapping"]]
    return offsets if encoded["input_ids"] == plain and _cover(offsets, len(text)) else None


def _cover(offsets: Sequence[Offset], length: int) -> bool:
    """Whether the tokens cover a text of this length in order."""
    edges = [(0, 0), *offsets, (length, length)]
    return all(before[0] <= after[0] <= before[1] <= after[1] for before, after in pairwise(edges))


def _by_decoding(tokenizer: Any, text: str, plain: list[int]) -> list[Offset]:
    """A token has the characters that it completes, and the next one too if it holds a part of it.

    A token that adds nothing after undecodable bytes is a further byte of them.
    """
    completed, parts = _completed(tokenizer, text, plain)
    offsets: list[Offset] = []
    before = floor = 0
    for end, part in zip(completed, _holds_part_of_next(completed, parts), strict=True):
        start, last = before, min(end + part, len(text))
        if start == last and text[start - 1 : start] == _UNDECODED:
            start = max(start - 1, floor)
        offsets.append((start, last))
        before, floor = end, start
    return offsets


def _completed(tokenizer: Any, text: str, plain: list[int]) -> tuple[list[int], list[bool]]:
    """After each token: how many characters of the text are decoded, and whether decoding gives more, not in the text.

    Decoding every prefix would take quadratic time, so only a window is decoded: the tokens placed last, whose text is
    known, and the tokens after them. Tokens that stay open for long are placed by decoding whole prefixes.
    """
    completed: list[int] = []
    parts: list[bool] = []
    first = read = placed = 0  # the window's first token, the first token not placed, the number of characters placed
    known = ""
    while (index := len(completed)) < len(plain):
        window = tokenizer.decode(plain[first : index + 1], skip_special_tokens=True)
        end, rest = _match(window, known, text, placed if first else 0)
        at_the_end = index + 1 == len(plain) and end < len(text)
        if first and (at_the_end or (rest and index - read >= _PATIENCE)):
            first, known = 0, ""
            del completed[read:], parts[read:]
            continue
        completed.append(max([end, *completed[-1:]]))
        parts.append(rest)
        if end > placed and not rest:
            context = tokenizer.decode(plain[read : index + 1], skip_special_tokens=True)
            if context:
                first, read, placed, known = read, index + 1, end, context if read else ""
    return completed, parts


def _match(window: str, known: str, text: str, placed: int) -> tuple[int, bool]:
    """Characters of the text up to the end of a window that begins with a known text, and whether the window has more.

    A window with another beginning ends in bytes that are not yet a character and that corrupt those before them.
    """
    if not window.startswith(known):
        return placed, True
    added = window[len(known) :]
    pairs = zip(added, text[placed : placed + len(added)], strict=False)
    common = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(added), len(text) - placed))
    return placed + common, common < len(added)


def _holds_part_of_next(completed: Sequence[int], parts: Sequence[bool]) -> list[bool]:
    """Whether each token holds a part of the next character; text that vanishes before it is complete is no part."""
    result = list(parts)
    for index in reversed(range(len(parts) - 1)):
        result[index] = parts[index] and (completed[index] < completed[index + 1] or result[index + 1])
    return result


def token_steps(offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """The step that shares most characters with each token (the earlier of equals), else -1.

    So each token belongs to at most one step. All tokens of one character get its step, and a token without characters
    (a special token, whose offsets are empty) has none.

    Args:
        offsets: (start, end) in characters of each token in order (`token_offsets`).
        spans: (start, end) in characters of each step, in order and without overlap.

    Returns:
        (T,) int32, -1 for a token of no step.

    Raises:
        ValueError: spans overlap or are out of order.
    """
    if any(before[1] > after[0] for before, after in pairwise(spans)):
        raise ValueError(f"spans of steps must be sorted and must not overlap, got {list(spans)}")
    ids = np.full(len(offsets), -1, dtype=np.int32)
    first = 0
    for token, (start, end) in enumerate(offsets):
        while first < len(spans) and spans[first][1] <= start:
            first += 1
        most = 0
        for step in range(first, len(spans)):
            if spans[step][0] >= end:
                break
            shared = min(end, spans[step][1]) - max(start, spans[step][0])
            if shared > most:
                ids[token], most = step, shared
    return ids
