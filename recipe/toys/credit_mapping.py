"""The mapping of `workers.credit.shape_advantages` in numpy, for solutions whose steps are one token each.

For one advantage A a solution and credits c of its steps, with cbar their mean:

    u_t = (c_t - cbar) / (max_k |c_k - cbar| + tolerance),    A_t = A + strength * u_t

and A_t = A, bit for bit, when A is 0 (a group without reward variance) or no credit stands out by `tolerance`.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def group_advantages(rewards: Array, tolerance: float = 1e-6) -> Array:
    """(r - mean) / (std + tolerance) over the last axis, the group (GRPO, Shao et al. 2024, arXiv 2402.03300)."""
    deviation = rewards - rewards.mean(-1, keepdims=True)
    return deviation / (rewards.std(-1, ddof=1, keepdims=True) + tolerance)


def shape_advantages(advantages: Array, credits: Array, strength: float, tolerance: float = 1e-6) -> Array:
    """Advantages (...) and credits (..., steps) to advantages of each step (..., steps)."""
    deviation = credits - credits.mean(-1, keepdims=True)
    spread = np.abs(deviation).max(-1)
    silent = (np.abs(credits).max(-1) < tolerance) | (spread < tolerance) | (advantages == 0)
    shift = np.where(silent[..., None], 0.0, strength * deviation / (spread + tolerance)[..., None])
    plain = np.broadcast_to(advantages[..., None], credits.shape)
    # x + 0.0 is not x bit for bit where x is -0.0.
    return np.where(shift == 0, plain, plain + shift)
