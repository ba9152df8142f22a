"""Near-duplicate search by MinHash and locality-sensitive hashing (Broder 1997; Indyk and Motwani 1998), with numpy.

A set is a sorted array of 64-bit hashes. Two sets of Jaccard similarity s become a candidate pair with the probability
1 - (1 - s^ROWS)^BANDS: 0.28 at s = 0.5, 0.94 at 0.7, 0.998 at 0.8. `datasketch` would do the same, but it needs scipy,
which the GPU image does not have.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

BANDS, ROWS = 21, 6

# In a bucket of many, each member is compared with so many that follow it: copies of one text form a chain, not a
# clique of quadratic size.
_WINDOW = 64

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


def signature(values: Hashes) -> Hashes:
    """The MinHash signature of a set that is not empty: BANDS x ROWS minima, each under a permutation of its own."""
    salts = _mixed(np.arange(1, BANDS * ROWS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    # Odd multipliers permute the 64-bit numbers, and the minimum of high bits is fair because the values are mixed.
    return (values[:, None] * (salts | np.uint64(1)) ^ salts).min(axis=0)


def jaccard(left: Hashes, right: Hashes) -> float:
    """Shared elements divided by all elements of two sets, 0.0 when both are empty."""
    shared = len(np.intersect1d(left, right, assume_unique=True))
    union = len(left) + len(right) - shared
    return shared / union if union else 0.0


def similar_pairs(sets: Sequence[Hashes], threshold: float) -> Iterator[tuple[int, int, float]]:
    """Pairs (i, j, similarity) of sets, i < j, that are at least as similar as `threshold` and met in some bucket.

    Empty sets are similar to nothing. Of more than _WINDOW sets in one bucket only neighbours are paired, so that
    connected groups are complete while the pairs in them may not be.
    """
    numbers = [index for index, values in enumerate(sets) if len(values)]
    if not numbers:
        return
    signatures = np.stack([signature(sets[index]) for index in numbers])
    seen: set[tuple[int, int]] = set()
    for band in range(BANDS):
        for bucket in _buckets(signatures[:, band * ROWS : (band + 1) * ROWS]):
            for place, first in enumerate(bucket):
                for second in bucket[place + 1 : place + 1 + _WINDOW]:
                    pair = numbers[first], numbers[second]
                    if pair not in seen:
                        seen.add(pair)
                        similarity = jaccard(sets[pair[0]], sets[pair[1]])
                        if similarity >= threshold:
                            yield *pair, similarity


def _buckets(keys: Hashes) -> Iterator[list[int]]:
    """Row numbers, in order, of the rows that equal some other row."""
    found: dict[bytes, list[int]] = {}
    for index, key in enumerate(np.ascontiguousarray(keys)):
        found.setdefault(key.tobytes(), []).append(index)
    return (bucket for bucket in found.values() if len(bucket) > 1)
