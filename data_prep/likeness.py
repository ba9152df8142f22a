"""Which tasks are alike: classes of equal texts in normal form, and pairs of classes that are nearly equal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from data_prep.minhash import Hashes, shingles, similar_pairs

# A run of tokens that so many distinct texts share is wording of a template, not content: it does not make tasks alike.
_BOILERPLATE_SHARE, _BOILERPLATE_MINIMUM = 0.02, 50


@dataclass(frozen=True)
class Likeness:
    """Texts by what is left of them.

    class_of: of each text the number of its class, None where there is too little text to tell.
    near: of each class the classes nearly equal to it, with the similarity in [threshold, 1].
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
    """Compares all texts with all others. width: tokens of a shingle; minimum: fewer tokens than that are too little
    to tell; threshold: Jaccard similarity from which two texts are nearly equal.
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
