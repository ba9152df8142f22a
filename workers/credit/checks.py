"""Refusals of `workers.credit.shape_advantages`: arguments that do not fit together."""

import math

import torch
from torch import Tensor


def check_shapes(
    advantages: Tensor,
    credits: Tensor,
    step_ids: Tensor,
    response_mask: Tensor,
    **optional: Tensor | None,
) -> None:
    """Raise ValueError for shapes or types that do not fit together.

    optional: `groups` and `rewards` (B,), `step_keys` (B, K), or None.
    """
    shapes = {
        "advantages (B, T)": advantages,
        "credits (B, K)": credits,
        "step_ids (B, T)": step_ids,
        "response_mask (B, T)": response_mask,
    }
    fit = (
        all(tensor.dim() == 2 for tensor in shapes.values())
        and advantages.shape == step_ids.shape == response_mask.shape
        and len(credits) == len(advantages)
        and advantages.numel() > 0
    )
    if not fit:
        given = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in shapes.items())
        raise ValueError(f"shapes do not fit together: {given}")
    for name, tensor in optional.items():
        expected = tuple(credits.shape) if name == "step_keys" else (len(advantages),)
        if tensor is not None and tensor.shape != expected:
            raise ValueError(
                f"{name} must be {expected} for advantages {tuple(advantages.shape)}, got {tuple(tensor.shape)}"
            )
    for name, tensor in (("step_ids", step_ids), ("step_keys", optional.get("step_keys"))):
        if tensor is not None and (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool):
            raise ValueError(f"{name} must be integer, got {tensor.dtype}")
    if not (advantages.is_floating_point() and credits.is_floating_point()):
        raise ValueError(f"advantages and credits must be floating, got {advantages.dtype} and {credits.dtype}")
    if credits.isinf().any():
        raise ValueError("credits must be finite, or NaN for a step without credit; got an infinite one")


def check_choice(name: str, value: str, valid: tuple[str, ...]) -> None:
    """Raise ValueError, with the valid values, for another one."""
    if value not in valid:
        raise ValueError(f"{name} must be one of {', '.join(valid)}, got {value!r}")


def check_numbers(strength: float, tolerance: float, min_valid: int) -> None:
    """Raise ValueError for a number out of range."""
    if not (math.isfinite(strength) and strength >= 0):
        raise ValueError(f"strength must be finite and >= 0, got {strength}")
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise ValueError(f"tolerance must be finite and > 0, got {tolerance}")
    if min_valid < 2:
        raise ValueError(f"min_valid must be >= 2 (one credit is no contrast), got {min_valid}")
