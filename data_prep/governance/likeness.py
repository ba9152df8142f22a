"""Similarity of tasks: equality of normal forms, and near duplicates by MinHash.

Near duplicates: locality-sensitive hashing (Broder 1997; Indyk and Motwani 1998), with rensa. A set is a sorted array
of 64-bit hashes. Two sets of Jaccard similarity s become a candidate pair with probability 1 - (1 - s^ROWS)^BANDS:
0.28 at s = 0.5, 0.94 at 0.7, 0.998 at 0.8. The reported similarity is exact. The normal form of a text or program is
its list of tokens, without case and layout, or without comments and names.
"""

import builtins
import hashlib
import keyword
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash, RMinHashLSH

# Operators count: "a - b" and "a + b" are different problems. Other punctuation is layout.
_CONTENT = re.compile(r"\w+|[-+*/%<>=&|^~]")

# A lexer, not a parser: ten times faster, and it accepts programs that do not parse or are in another language.
_LEXEME = re.compile(
    r"""
      (?P<comment> \#[^\n]* )
    | (?P<string> [rbfuRBFU]{0,2} (?: '{3}.*?'{3} | "{3}.*?"{3} | '(?:\\.|[^'\\\n])*' | "(?:\\.|[^"\\\n])*" ) )
    | (?P<name> [^\W\d]\w* )
    | (?P<other> \d[\w.]* | \*\* | // | [=!<>]= | [^\w\s] )
    """,
    re.VERBOSE | re.DOTALL,
)
_KEPT_NAMES = frozenset(dir(builtins)) | frozenset(keyword.kwlist)


def prompt_tokens(text: str) -> list[str]:
    """Words, numbers and operators of a prompt, without case, other punctuation, layout and Unicode variants."""
    return _CONTENT.findall(unicodedata.normalize("NFKC", text).casefold())


def solution_tokens(text: str) -> list[str]:
    """Tokens of a program in normal form, without comments, docstrings, layout and the names it chooses.

    Names are numbered in order of appearance; keywords, builtins, attributes and constants stay.
    """
    tokens: list[str] = []
    numbers: dict[str, str] = {}
    for match in _LEXEME.finditer(text):
        lexeme = match[0]
        if match.lastgroup == "comment" or (match.lastgroup == "string" and _is_statement(text, match.start(), tokens)):
            continue
        if match.lastgroup == "name" and lexeme not in _KEPT_NAMES and tokens[-1:] != ["."]:
            lexeme = numbers.setdefault(lexeme, f"v{len(numbers)}")
        tokens.append(lexeme)
    return tokens


def _is_statement(text: str, start: int, before: list[str]) -> bool:
    """Whether a string begins a line and does not continue an expression, so that it is documentation."""
    return not text[text.rfind("\n", 0, start) + 1 : start].strip() and (not before or before[-1] not in "([{,=+%|\\")


BANDS, ROWS = 21, 6

# Each set is compared with at most this many later candidates: copies of one text form a chain, not a clique of
# quadratic size.
_WINDOW = 64
_SEED = 1

Hashes = NDArray[np.uint64]


@lru_cache(maxsize=1 << 18)
def _token_hash(token: str) -> int:
    return int.from_bytes(hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def shingles(tokens: Sequence[str], width: int) -> Hashes:
    """The set of hashes of runs of `width` tokens; fewer tokens than that form one run, no tokens the empty set."""
    if not tokens:
        return np.empty(0, np.uint64)
    hashes = np.fromiter((_token_hash(token) for token in tokens), np.uint64, len(tokens))
    width = min(width, len(tokens))
    runs = np.zeros(len(tokens) - width + 1, np.uint64)
    for place in range(width):
        runs = _mixed(runs ^ hashes[place : place + len(runs)])
    return np.unique(runs)


def _mixed(values: Hashes) -> Hashes:
    """A bijection of 64-bit numbers that mixes the bits of its argument (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def jaccard(left: Hashes, right: Hashes) -> float:
    """Shared elements divided by all elements of two sets; 0.0 if both are empty."""
    shared = len(np.intersect1d(left, right, assume_unique=True))
    union = len(left) + len(right) - shared
    return shared / union if union else 0.0


def similar_pairs(sets: Sequence[Hashes], threshold: float) -> Iterator[tuple[int, int, float]]:
    """Pairs (i, j, similarity) of sets, i < j, that share a bucket and are at least as similar as `threshold`.

    Empty sets are similar to none. Only the next _WINDOW candidates are compared, so connected groups are complete
    while the pairs in them may not be.
    """
    numbers = [index for index, values in enumerate(sets) if len(values)]
    # rensa takes tokens as bytes; a hash has eight of them.
    signatures = RMinHash.from_token_sets([sets[index].view("V8").tolist() for index in numbers], BANDS * ROWS, _SEED)
    index = RMinHashLSH(threshold, BANDS * ROWS, BANDS)
    for number, signature in zip(numbers, signatures, strict=True):
        index.insert(number, signature)
    for number, signature in zip(numbers, signatures, strict=True):
        for other in sorted(other for other in index.query(signature) if other > number)[:_WINDOW]:
            similarity = jaccard(sets[number], sets[other])
            if similarity >= threshold:
                yield number, other, similarity


# A run of tokens in more distinct texts than this is wording of a template, not content: it does not count.
_BOILERPLATE_SHARE, _BOILERPLATE_MINIMUM = 0.02, 50


@dataclass(frozen=True)
class Likeness:
    """Classes of texts with equal normal forms, and near duplicates among the classes.

    class_of: the class number of each text; None if the text is too short to compare.
    near: the classes nearly equal to each class, with the similarity in [threshold, 1].
    """

    class_of: list[int | None]
    near: dict[int, list[tuple[int, float]]]


def likeness(
    texts: Sequence[str | None],
    tokens_of: Callable[[str], list[str]],
    *,
    width: int,
    minimum: int,
    threshold: float,
) -> Likeness:
    """Compare all texts with each other.

    width: tokens per shingle. minimum: tokens below which a text is too short to compare. threshold: Jaccard similarity
    from which two texts are nearly equal.
    """
    numbers: dict[tuple[str, ...], int] = {}
    class_of: list[int | None] = []
    for text in texts:
        tokens = () if text is None else tuple(tokens_of(text))
        enough = len(tokens) >= max(1, minimum)
        class_of.append(numbers.setdefault(tokens, len(numbers)) if enough else None)
    sets = _without_boilerplate([shingles(tokens, width) for tokens in numbers])
    near: dict[int, list[tuple[int, float]]] = {}
    for first, second, similarity in similar_pairs(sets, threshold):
        near.setdefault(first, []).append((second, similarity))
        near.setdefault(second, []).append((first, similarity))
    return Likeness(class_of, near)


def _without_boilerplate(sets: Sequence[Hashes]) -> list[Hashes]:
    if not sets:
        return []
    values, counts = np.unique(np.concatenate(sets), return_counts=True)
    common = values[counts > max(_BOILERPLATE_MINIMUM, _BOILERPLATE_SHARE * len(sets))]
    return [np.setdiff1d(values, common, assume_unique=True) for values in sets]
