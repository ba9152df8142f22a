"""Which characters of a response each of its tokens stands for, and so which step it belongs to."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np


def token_offsets(tokenizer: Any, token_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Characters [start, end) of each token in `tokenizer.decode(token_ids, skip_special_tokens=True)`.

    Every token of a character that takes several has that character; a special token has none (start = end). The ids
    are those that were generated: a model need not write a text with the tokens that encoding it would give.

    Raises ValueError for a tokenizer whose pieces do not add up to the whole text.
    """
    special = set(tokenizer.all_special_ids)
    text = tokenizer.decode(token_ids, skip_special_tokens=True)
    plain = [token for token in token_ids if token not in special]
    offsets = _by_encoding(tokenizer, text, plain) or _by_decoding(tokenizer, text, plain)
    placed, position = iter(offsets), 0
    result = []
    for token in token_ids:
        start, end = (position, position) if token in special else next(placed)
        result.append((start, end))
        position = end
    return result


def _by_encoding(tokenizer: Any, text: str, plain: list[int]) -> list[tuple[int, int]] | None:
    """The tokenizer's own offsets, where encoding the text gives these very tokens: the usual case, and a fast one."""
    if not tokenizer.is_fast:
        return None
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return [tuple(pair) for pair in encoded["offset_mapping"]] if encoded["input_ids"] == plain else None


def _by_decoding(tokenizer: Any, text: str, plain: list[int]) -> list[tuple[int, int]]:
    """What each further token adds to the text; tokens wait for the one that completes their character."""
    offsets: list[tuple[int, int]] = []
    position = first = 0  # characters placed; the first token of the window that is decoded together
    known = ""
    for index in range(len(plain)):
        window = tokenizer.decode(plain[first : index + 1])
        if window.endswith("\ufffd") and index + 1 < len(plain):
            continue
        added = len(window) - len(known)
        waiting = index + 1 - len(offsets)
        offsets += [(position, position + added)] * waiting
        position += added
        first = index + 1 - waiting
        known = tokenizer.decode(plain[first : index + 1])
    if position != len(text):
        raise ValueError(f"tokens decode to {position} characters one by one and to {len(text)} together")
    return offsets


def token_steps(offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """The step of each token: the one that shares most of its characters (the earlier one of equals), else -1.

    So each token belongs to one step or to none: a character of several tokens gives all of them its step, and a
    token without characters (a special token, whose offsets are empty) has none.

    Args:
        offsets: (start, end) in characters of each token in order (`token_offsets`).
        spans: (start, end) in characters of each step, in order and without overlap.

    Returns:
        (T,) int32, -1 for a token of no step.

    Raises:
        ValueError: spans that overlap or are not in order.
    """
    if any(before[1] > after[0] for before, after in pairwise(spans)):
        raise ValueError(f"spans of steps must be in order and must not overlap, got {list(spans)}")
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
