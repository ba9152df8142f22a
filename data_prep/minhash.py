"""Near-duplicate search by MinHash and locality-sensitive hashing (Broder 1997; Indyk and Motwani 1998), with rensa.

A set is a sorted array of 64-bit hashes. Two sets of Jaccard similarity s become a candidate pair with the probability
1 - (1 - s^ROWS)^BANDS: 0.28 at s = 0.5, 0.94 at 0.7, 0.998 at 0.8. What is reported is their similarity itself.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash, RMinHashLSH

BANDS, ROWS = 21, 6

# Of many candidates each set is compared with so many that follow it: copies of one text form a chain, not a clique of
# quadratic size.
_WINDOW = 64
_SEED = 1

Hashes = NDArray[np.uint64]


@lru_cache(maxsize=1 << 18)
def _token_hash(token: str) -> int:
    return int.from_bytes(hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def shingles(tokens: Sequence[str], width: int) -> Hashes:
    """The set of runs of `width` tokens; fewer tokens than that are one run, none are the empty set."""
    if not tokens:
        return np.empty(0, np.uint64)
    hashes = np.fromiter((_token_hash(token) for token in tokens), np.uint64, len(tokens))
    width = min(width, len(tokens))
    runs = np.zeros(len(tokens) - width + 1, np.uint64)
    for place in range(width):
        runs = _mixed(runs ^ hashes[place : place + len(runs)])
    return np.unique(runs)


def _mixed(values: Hashes) -> Hashes:
    """A bijection of 64-bit numbers that scatters its argument's bits (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def jaccard(left: Hashes, right: Hashes) -> float:
    """Shared elements divided by all elements of two sets, 0.0 when both are empty."""
    shared = len(np.intersect1d(left, right, assume_unique=True))
    union = len(left) + len(right) - shared
    return shared / union if union else 0.0


def similar_pairs(sets: Sequence[Hashes], threshold: float) -> Iterator[tuple[int, int, float]]:
    """Pairs (i, j, similarity) of sets, i < j, that are at least as similar as `threshold` and met in some bucket.

    Empty sets are similar to nothing. Of more than _WINDOW candidates only the next are compared, so that connected
    groups are complete while the pairs in them may not be.
    """
    numbers = [index for index, values in enumerate(sets) if len(values)]
    # rensa reads tokens as bytes; a hash is eight of them.
    signatures = RMinHash.from_token_sets([sets[index].view("V8").tolist() for index in numbers], BANDS * ROWS, _SEED)
    index = RMinHashLSH(threshold, BANDS * ROWS, BANDS)
    for number, signature in zip(numbers, signatures, strict=True):
        index.insert(number, signature)
    for number, signature in zip(numbers, signatures, strict=True):
        for other in sorted(other for other in index.query(signature) if other > number)[:_WINDOW]:
            similarity = jaccard(sets[number], sets[other])
            if similarity >= threshold:
                yield number, other, similarity
