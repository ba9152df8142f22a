"""The projection in numpy equals the workers', and its exact method satisfies the optimality conditions."""

import numpy as np
import pytest
import torch

from examples.toys.projection import METHODS, project, unit
from workers import projection

PROBLEMS, PARAMETERS = 40, 12


def batch(seed: int, skills: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps (40, 12) and constraints (40, S, 12) that conflict with each other and with the step, at any scale."""
    rng = np.random.default_rng(seed)
    step = rng.normal(size=(PROBLEMS, PARAMETERS))
    constraints = rng.normal(size=(PROBLEMS, skills, PARAMETERS)) - 0.5 * step[:, None]
    constraints[1::2, 1:] -= 0.8 * constraints[1::2, :1]
    return step, constraints * 10.0 ** rng.integers(-3, 4, (PROBLEMS, skills, 1))


@pytest.mark.slow
@pytest.mark.parametrize("skills", [1, 2, 3])
@pytest.mark.parametrize(
    ("method", "epsilon"),
    [("none", 0.1), ("pcgrad", 0.0), ("sequential_margin", 0.0), ("sequential_margin", 0.1), ("qp", 0.0), ("qp", 0.1)],
)
def test_it_equals_the_projection_of_the_workers(method: str, epsilon: float, skills: int) -> None:
    step, constraints = batch(skills, skills)
    found = project(step, constraints, epsilon, method)
    for index in range(PROBLEMS):
        expected = projection.project(
            torch.from_numpy(step[index]),
            torch.from_numpy(constraints[index]),
            epsilon,
            method,
            epsilon_kind="cosine",
        ).step
        # The workers' sequential method stops once no constraint is missed by more than 1e-7.
        np.testing.assert_allclose(found[index], expected.numpy(), atol=1e-5 if method == "sequential_margin" else 1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_the_exact_method_keeps_every_constraint_and_moves_no_more_than_the_sequential_one(epsilon: float) -> None:
    step, constraints = batch(7, 3)
    size = np.linalg.norm(step, axis=-1)
    exact = project(step, constraints, epsilon, "qp")
    slack = (unit(constraints) @ exact[..., None])[..., 0] / size[:, None] + epsilon
    assert slack.min() > -1e-9
    moved, sequential = (
        np.linalg.norm(project(step, constraints, epsilon, method) - step, axis=-1) / size
        for method in ("qp", "sequential_margin")
    )
    assert (moved <= sequential + 1e-6).all()


def test_closed_form_of_one_constraint_and_degenerate_gradients() -> None:
    step = np.array([[1.0, -2.0]])
    up = np.array([[[0.0, 5.0]]])
    np.testing.assert_allclose(project(step, up), [[1.0, 0.0]], atol=1e-12)
    np.testing.assert_allclose(project(step, np.repeat(up, 3, axis=1)), [[1.0, 0.0]], atol=1e-6)
    assert (project(step, -up) == step).all()
    assert (project(step, 0 * up) == step).all()
    opposite = np.concatenate([up, -up], axis=1)
    np.testing.assert_allclose(project(step, opposite), [[1.0, 0.0]], atol=1e-6)
    against_everything = np.array([[[-1.0, 2.0], [0.0, 1.0]]])
    np.testing.assert_allclose(project(step, against_everything), [[0.0, 0.0]], atol=1e-9)


def test_unit_leaves_a_vector_of_zero() -> None:
    np.testing.assert_allclose(unit(np.array([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0.0, 0.0]])


def test_mistakes_are_refused() -> None:
    step, constraints = batch(0, 1)
    with pytest.raises(ValueError, match=", ".join(METHODS)):
        project(step, constraints, 0.0, "mgda")
    with pytest.raises(ValueError, match="epsilon must be >= 0"):
        project(step, constraints, float("nan"))
