"""Reads results of `compute_score`, whose values are numbers and words."""

from collections.abc import Mapping


def number_of(result: Mapping[str, float | str], name: str) -> float:
    """The value of this name, which has to be a number."""
    value = result[name]
    assert not isinstance(value, str)
    return value
