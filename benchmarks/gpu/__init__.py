"""Checks of the GPU path on one machine: scripts/gpu_check.sh."""

import importlib.util


def kernels() -> list[str]:
    """The override that a GPU without flash-attn needs."""
    return [] if importlib.util.find_spec("flash_attn") else ["+kernels=torch"]
