"""Projection in another metric, with noisy gradients and against the mean constraint: exact beside dense solvers."""

import math

import numpy as np
import pytest
import quadprog
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from workers.projection import constraint_gram, project
from workers.safety import metric
from workers.safety.metric import FLOOR, MetricError, adam_inverse_metric


def problem(seed: int, skills: int, parameters: int = 12):
    """Step, constraints and a positive diagonal H in float64."""
    generator = torch.Generator().manual_seed(seed)
    step = torch.randn(parameters, generator=generator, dtype=torch.float64)
    constraints = torch.randn(skills, parameters, generator=generator, dtype=torch.float64) - 0.3 * step
    return step, constraints, torch.exp(torch.randn(parameters, generator=generator, dtype=torch.float64))


cases = st.builds(problem, st.integers(0, 10_000), st.integers(1, 5))


@pytest.mark.slow
@given(cases, st.floats(0, 2))
@settings(max_examples=60, deadline=None)
def test_the_projection_in_a_metric_is_that_of_a_dense_quadratic_program(drawn, epsilon):
    step, constraints, diagonal = drawn
    found = project(step, constraints, epsilon, inverse_metric=1 / diagonal)
    bounds = np.full(len(constraints), -epsilon)
    dense = quadprog.solve_qp(np.diag(diagonal.numpy()), (diagonal * step).numpy(), constraints.T.numpy(), bounds)[0]
    np.testing.assert_allclose(found.step.numpy(), dense, atol=1e-5 * float(step.norm()))
    # x = d + H^-1 G' lambda, lambda >= 0, complementary slackness
    torch.testing.assert_close(found.step, step + constraints.T @ found.multipliers / diagonal)
    assert (found.multipliers >= 0).all()
    slack = constraints @ found.step + epsilon
    scale = (constraints.square() / diagonal).sum(1).sqrt() * (step.square() * diagonal).sum().sqrt()
    assert (slack >= -1e-6 * scale).all()
    assert (found.multipliers * slack).abs().max() <= 1e-5 * float((step.square() * diagonal).sum())
    torch.testing.assert_close(found.slack, slack, atol=1e-8, rtol=1e-6)


@pytest.mark.slow
@given(cases)
@settings(max_examples=20, deadline=None)
def test_a_metric_of_ones_is_no_metric_and_its_scale_is_irrelevant(drawn):
    step, constraints, diagonal = drawn
    plain = project(step, constraints)
    torch.testing.assert_close(project(step, constraints, inverse_metric=torch.ones_like(step)).step, plain.step)
    once, scaled = (project(step, constraints, inverse_metric=scale / diagonal).step for scale in (1.0, 1e-6))
    torch.testing.assert_close(scaled, once, atol=1e-5, rtol=0)


def test_a_metric_by_hand_moves_what_is_cheap():
    # <g, d> = -2; H^-1 g = (4, 1), <g, H^-1 g> = 5: lambda = 2/5
    found = project(torch.tensor([-1.0, -1.0]), torch.ones(1, 2), inverse_metric=torch.tensor([4.0, 1.0]))
    assert found.step.tolist() == pytest.approx([0.6, -0.6])
    assert found.multipliers.tolist() == pytest.approx([0.4])


def test_a_metric_in_parts_with_a_known_gram_and_in_place_is_that_of_one_vector():
    step, constraints, diagonal = problem(3, 3)
    flat = project(step, constraints, inverse_metric=1 / diagonal)
    steps, rows, inverse = ([each[..., :5], each[..., 5:]] for each in (step, constraints, 1 / diagonal))
    gram = constraint_gram(constraints / diagonal.sqrt())
    parts = project([each.clone() for each in steps], rows, inverse_metric=inverse, gram=gram, in_place=True)
    torch.testing.assert_close(torch.cat(parts.step), flat.step)
    with pytest.raises(ValueError, match="form of the step"):
        project(step, constraints, inverse_metric=torch.ones(3))


@pytest.mark.slow
@given(cases, st.lists(st.floats(0, 0.9), min_size=5, max_size=5), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_noisy_constraints_give_the_nearest_point_of_their_cones(drawn, noises, epsilon):
    step, constraints, _ = drawn
    noise = noises[: len(constraints)]
    found = project(step, constraints, epsilon, noise=noise)
    margins = torch.tensor(noise, dtype=torch.float64) * constraints.norm(dim=1)

    def slack(at: np.ndarray) -> np.ndarray:
        point = torch.from_numpy(at)
        return (constraints @ point + epsilon - margins * point.norm()).numpy()

    scale = float(constraints.norm(dim=1).max() * step.norm())
    assert slack(found.step.numpy()).min() >= -2e-5 * scale
    dense = minimize(
        lambda at: 0.5 * float(((at - step.numpy()) ** 2).sum()),
        found.step.numpy() * 0.9 + 1e-3, jac=lambda at: at - step.numpy(), method="SLSQP",
        constraints={"type": "ineq", "fun": slack}, options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    ours = float((found.step - step).norm())
    if dense.success and slack(dense.x).min() >= -1e-7 * scale:
        assert ours <= math.sqrt(2 * dense.fun) + 1e-3 * float(step.norm())
    assert found.step.norm() <= step.norm() * (1 + 1e-6)


def test_a_noisy_constraint_by_hand():
    # d = (0, -1), g = (0, 1): with noise sin(30 degrees) = 1/2 the cone is all x within 60 degrees of g.
    found = project(torch.tensor([2.0, -1.0]), torch.tensor([[0.0, 3.0]]), noise=[0.5])
    along = (2.0 * math.cos(math.radians(30)) - math.sin(math.radians(30))) * torch.tensor([3**0.5 / 2, 0.5])
    assert found.step.tolist() == pytest.approx(along.tolist(), abs=1e-5)
    assert not found.missed
    assert project(torch.tensor([1.0, 1.0]), torch.tensor([[0.0, 3.0]]), noise=[0.5]).moved == 0
    assert project(torch.tensor([1.0, 1.0]), torch.tensor([[0.0, 3.0]]), noise=[1.1]).stalled


@pytest.mark.parametrize(
    ("noise", "method", "message"),
    [([-0.1], "qp", ">= 0"), ([0.1, 0.1], "qp", "1 numbers"), ([0.1], "pcgrad", "no noise")],
)
def test_noise_that_no_method_can_use_is_refused(noise, method, message):
    with pytest.raises(ValueError, match=message):
        project(torch.ones(2), torch.ones(1, 2), method=method, noise=noise)


def test_the_mean_constraint_by_hand_may_leave_a_skill_to_lose():
    # mean of (2, 0) and (0, 4) = (1, 2); d = (1, -1): <mean, d> = -1, |mean|^2 = 5
    found = project(torch.tensor([1.0, -1.0]), torch.tensor([[2.0, 0.0], [0.0, 4.0]]), method="agem")
    assert found.step.tolist() == pytest.approx([1.2, -0.6])
    assert found.multipliers.tolist() == pytest.approx([0.1, 0.1])
    assert found.missed  # the second skill still loses
    unharmed = torch.tensor([3.0, -1.0])
    assert project(unharmed, torch.tensor([[2.0, 0.0], [0.0, 4.0]]), method="agem").step is unharmed


def test_recovery_bounds_the_gain_that_an_epsilon_asks_for():
    step, gradient = torch.tensor([0.0, -2.0]), torch.tensor([[5.0, 0.0]])
    assert project(step, gradient, -100.0, recovery=0.5).step.tolist() == pytest.approx([1.0, -2.0])
    assert project(step, gradient, -1.0, recovery=0.5).step.tolist() == pytest.approx([0.2, -2.0])


@pytest.mark.parametrize("epsilon", [0.0, 0.5, -0.1])
def test_more_constraints_than_parameters_leave_a_step_that_satisfies_all(epsilon):
    generator = torch.Generator().manual_seed(1)
    step, constraints = torch.tensor([1.0, -1.0]), torch.randn(7, 2, generator=generator)
    found = project(step, constraints, epsilon)
    assert (constraints @ found.step >= -max(epsilon, 0.0) - 1e-4).all()
    assert found.feasible == (epsilon >= 0)


def test_adams_metric_by_hand_with_a_floor(monkeypatch):
    parameters = [torch.nn.Parameter(torch.tensor([1.0, 1.0])), torch.nn.Parameter(torch.tensor([1.0]))]
    optimizer = torch.optim.AdamW(parameters, lr=0.1, betas=(0.9, 0.5), eps=0.25, weight_decay=0.0)
    assert adam_inverse_metric(optimizer, parameters) is None
    parameters[0].grad = torch.tensor([3.0, 4.0])
    optimizer.step()
    first, second = adam_inverse_metric(optimizer, parameters) or []
    # Bias-corrected: after one step |gradient| + eps, and a share of the root mean square of (3, 4, 0).
    least = FLOOR * (25 / 3) ** 0.5
    assert first.tolist() == pytest.approx([1 / (3.25 + least), 1 / (4.25 + least)])
    assert second.tolist() == pytest.approx([1 / (0.25 + least)])
    before = [parameter.detach().clone() for parameter in parameters]
    parameters[0].grad = torch.tensor([-3.0, 4.0])
    optimizer.step()
    moved = parameters[0].detach() - before[0]
    momentum = optimizer.state[parameters[0]]["exp_avg"] / (1 - 0.9**2)
    monkeypatch.setattr(metric, "FLOOR", 0.0)  # then it is Adam's own
    torch.testing.assert_close(moved, -0.1 * momentum * (adam_inverse_metric(optimizer, parameters) or [])[0])


def test_the_metric_of_many_elements_is_that_of_each_and_so_is_the_floor():
    """More elements than a block, and parameters that have taken different numbers of steps."""
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in (70_000, 3)]
    optimizer = torch.optim.AdamW(parameters, lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    generator = torch.Generator().manual_seed(0)
    for trained in (parameters, parameters[:1]):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator) if parameter in set(trained) else None
        optimizer.step()
    corrected = [
        optimizer.state[each]["exp_avg_sq"].double() / (1 - 0.999**count)
        for each, count in zip(parameters, (2, 1), strict=True)
    ]
    least = FLOOR * float(torch.cat(corrected).mean().sqrt())
    for found, exact in zip(adam_inverse_metric(optimizer, parameters) or [], corrected, strict=True):
        torch.testing.assert_close(found.double(), 1 / (exact.sqrt() + 1e-8 + least), rtol=1e-5, atol=0)


def test_the_inner_products_of_a_metric_serve_later_steps_of_any_number_of_blocks():
    generator = torch.Generator().manual_seed(0)
    constraints, step = torch.randn(5, 100_000, generator=generator), torch.randn(100_000, generator=generator)
    inverse = torch.rand(100_000, generator=generator) + 0.1
    first = project(step, constraints, inverse_metric=inverse)
    exact = (constraints.double() * inverse) @ constraints.double().T
    torch.testing.assert_close(first.gram, exact, rtol=1e-6, atol=1e-6 * float(exact.diag().max()))
    again = project(step - constraints.sum(0), constraints, inverse_metric=inverse)
    known = project(step - constraints.sum(0), constraints, inverse_metric=inverse, gram=first.gram)
    torch.testing.assert_close(known.step, again.step)
    assert known.multipliers.count_nonzero() == 5
    whole = step.double() - constraints.double().sum(0)
    expected = whole + inverse.double() * (known.multipliers @ constraints.double())
    torch.testing.assert_close(known.step.double(), expected, rtol=1e-5, atol=1e-5)


def test_an_optimiser_without_second_moments_has_no_metric():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    parameter.grad = torch.ones(2)
    optimizer.step()
    with pytest.raises(MetricError, match="momentum_buffer"):
        adam_inverse_metric(optimizer, [parameter])


def test_gain_that_would_need_a_long_step_is_scaled_to_twice_the_step_by_hand():
    """Gradients (1, 0) and (-c, s) are nearly opposite: gaining 0.5 along both takes x = (0.5, (0.5 + 0.5 c) / s)."""
    c, s = math.cos(0.1), math.sin(0.1)
    gradients, step = torch.tensor([[1.0, 0.0], [-c, s]], dtype=torch.float64), torch.tensor([0.0, 1.0]).double()
    whole = project(step, gradients, -0.5)
    height = (0.5 + 0.5 * c) / s
    assert whole.step.tolist() == pytest.approx([0.5, height], abs=1e-4)
    capped = project(step, gradients, -0.5, recovery=0.5)
    share = 2 / math.hypot(0.5, height)
    assert capped.step.tolist() == pytest.approx([0.5 * share, height * share], rel=1e-3)
    assert float(capped.step.norm()) <= 2
    assert (capped.feasible, capped.missed) == (True, False)
    assert capped.change.tolist() == pytest.approx([0.5 * share] * 2, rel=1e-3)


def test_gain_that_a_short_step_gives_is_not_scaled():
    found = project(torch.tensor([-1.0, 0.0]), torch.tensor([[1.0, 0.0]]), -0.5, recovery=0.5)
    assert found.step.tolist() == pytest.approx([0.5, 0.0])


def test_a_cone_that_holds_no_step_leaves_nothing_and_says_so():
    """Noise as large as the gradient: only its own direction is allowed, and d points against it."""
    found = project(torch.tensor([-1.0, 0.5]), torch.tensor([[1.0, 0.0]]), noise=[1.5])
    assert float(found.step.norm()) < 1e-3
    assert found.stalled


@pytest.mark.parametrize("recovery", [math.inf, 0.5])
def test_a_demand_that_no_step_meets_does_not_cancel_that_of_another_skill(recovery: float):
    constraints = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    found = project(torch.tensor([0.0, 0.0, 1.0]), constraints, [-0.1, 0.0, -0.1], recovery=recovery)
    assert not found.feasible
    assert found.step.tolist() == pytest.approx([0.0, 0.1, 1.0])
