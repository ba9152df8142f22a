"""The part of a ground truth that names what a program must define, where its tests alone do not say it."""

from collections.abc import Sequence

from rewards.entry_points import unknown_to_derivation


def named_entry_points(solution: str, tests: Sequence[str]) -> dict[str, list[str]]:
    """`entry_points` of a ground truth, taken from the reference solution; nothing where its tests show them all."""
    named = unknown_to_derivation(solution, tests)
    return {"entry_points": named} if named else {}
