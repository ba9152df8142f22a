"""The credit mapping of the toy: the defaults of `workers.credit`, with one token per step."""

import numpy as np

from examples.toys.credit import group_advantages, shape_advantages


def bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.int64)


def batch(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Advantages (60,) and credits (60, 8), including silent, constant and zero ones and negative zeros."""
    rng = np.random.default_rng(seed)
    advantages = rng.normal(size=60)
    credits = rng.integers(-4, 5, (60, 8)) / 4.0
    advantages[:10] = 0.0
    advantages[5:10] = -0.0
    credits[10:15] = 0.0
    credits[15:20] = 0.5
    credits[20:25] *= 1e-9
    return advantages, credits


def test_strength_zero_and_silent_credits_are_grpo_bit_for_bit() -> None:
    advantages, credits = batch(1)
    plain = np.repeat(advantages[:, None], 8, axis=1)
    assert (bits(shape_advantages(advantages, credits, 0.0)) == bits(plain)).all()
    assert (bits(shape_advantages(advantages, np.zeros_like(credits), 1.0)) == bits(plain)).all()


def test_mass_is_kept_and_the_strength_is_the_bound() -> None:
    advantages, credits = batch(2)
    change = shape_advantages(advantages, credits, 0.7) - advantages[:, None]
    np.testing.assert_allclose(change.mean(-1), 0, atol=1e-12)
    assert 0.69 < np.abs(change).max() <= 0.7


def test_a_group_is_standardised_and_an_equal_one_has_no_advantage() -> None:
    advantages = group_advantages(np.array([[1.0, 0.0], [1.0, 1.0]]))
    np.testing.assert_allclose(advantages, [[0.5**0.5, -(0.5**0.5)], [0, 0]], atol=1e-5)
