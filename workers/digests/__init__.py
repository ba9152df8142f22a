"""Digests of what an engine computes with, compared with what was trained."""

CONSEQUENCE = "its answers would be another model's. Checkpoints are not affected: start the same run again"


class WeightsDifferError(RuntimeError):
    """The engine would answer with other weights than the actor has."""
