"""Gradients match finite differences of the values, and values have their known extremes."""

import numpy as np
import pytest

from examples.toys.projection import PROBLEMS, PROTECTED, ProblemKind, Quadratic, SkillProblem, Tabular

each_kind = pytest.mark.parametrize("kind", PROBLEMS, ids=lambda kind: kind.name)


def draw(kind: ProblemKind, seed: int = 0) -> tuple[SkillProblem, np.ndarray]:
    """Five problems and random parameters."""
    rng = np.random.default_rng(seed)
    return kind.draw(rng, 5), rng.normal(size=(5, kind.parameters))


@each_kind
def test_gradients_equal_finite_differences(kind: ProblemKind) -> None:
    problem, theta = draw(kind)
    direction = np.random.default_rng(1).normal(size=theta.shape)
    slope = (problem.values(theta + 1e-5 * direction) - problem.values(theta - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose((problem.gradients(theta) @ direction[..., None])[..., 0], slope, atol=1e-8)


@each_kind
def test_values_are_at_most_one_and_a_seed_gives_the_same_problem(kind: ProblemKind) -> None:
    problem, theta = draw(kind)
    again, _ = draw(kind)
    assert problem.values(theta).shape == (5, PROTECTED + 1)
    assert (problem.values(theta) <= 1).all()
    assert (problem.values(theta) == again.values(theta)).all()


def test_quadratic_is_zero_untrained_and_one_where_a_skill_is_met() -> None:
    problem, _ = draw(Quadratic)
    assert isinstance(problem, Quadratic)
    np.testing.assert_allclose(problem.values(np.zeros((5, 20))), 0, atol=1e-12)
    met = (np.linalg.pinv(problem.matrices[:, 1]) @ problem.targets[:, 1, :, None])[..., 0]
    np.testing.assert_allclose(problem.values(met)[:, 1], 1)


def test_tabular_is_chance_untrained_and_one_for_the_policy_of_a_skill() -> None:
    problem, _ = draw(Tabular)
    assert isinstance(problem, Tabular)
    np.testing.assert_allclose(problem.values(np.zeros((5, 96))), 0.25)
    np.testing.assert_allclose(problem.values(50 * problem.right[:, 2].reshape(5, 96))[:, 2], 1)
    assert (np.count_nonzero(problem.weights, axis=-1) == 10).all()
