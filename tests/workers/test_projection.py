"""Laws of the projection: optimality, invariances, degenerate gradients, shards, and refused input."""

import math
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from workers.geometry import Solver
from workers.projection import NotFiniteError, Projection, constraint_gram, project
from workers.safety.controls import random_signs, resigned

PARAMETERS = 40
# Of 1001 parameters, as Adam's metric: some move ten times as easily as others.
INVERSE = torch.rand(1001, generator=torch.Generator().manual_seed(5)) + 0.1
METHODS = (*get_args(Solver), "none")  # torchjd's methods: test_aggregators.py


def problem(seed: int, skills: int, correlation: float = 0.0, parameters: int = PARAMETERS) -> tuple[Tensor, Tensor]:
    """A random step (P,) and constraints (S, P) in float64; with correlation < 0 the gradients conflict."""
    generator = torch.Generator().manual_seed(seed)
    step = torch.randn(parameters, generator=generator, dtype=torch.float64)
    constraints = torch.randn(skills, parameters, generator=generator, dtype=torch.float64)
    common = torch.randn(parameters, generator=generator, dtype=torch.float64)
    signs = (-1.0) ** torch.arange(skills)[:, None] if correlation < 0 else 1.0
    return step, constraints + 3 * abs(correlation) * signs * common - 0.3 * step


def distance(result: Projection, step: Tensor) -> float:
    return float((result.step - step).norm())


problems = st.builds(problem, st.integers(0, 10_000), st.integers(1, 6), st.sampled_from([-1.0, 0.0, 1.0]))


@pytest.mark.slow
@given(problems, st.floats(0, 5))
@settings(max_examples=60, deadline=None)
def test_qp_satisfies_the_optimality_conditions(drawn: tuple[Tensor, Tensor], epsilon: float) -> None:
    step, constraints = drawn
    result = project(step, constraints, epsilon)
    slack = constraints @ result.step + epsilon
    scale = constraints.norm(dim=1) * step.norm()
    assert (slack >= -1e-6 * scale).all()
    assert (result.multipliers >= 0).all()
    force = result.multipliers * constraints.norm(dim=1) / step.norm()
    assert (force * slack / scale).abs().max() < 1e-6
    torch.testing.assert_close(result.step, step + constraints.T @ result.multipliers)
    torch.testing.assert_close(result.slack, slack, atol=1e-9, rtol=1e-6)
    torch.testing.assert_close(result.change, constraints @ result.step, atol=1e-9, rtol=1e-6)
    assert result.moved == pytest.approx(distance(result, step) / float(step.norm()), abs=1e-9)


@pytest.mark.slow
@given(problems)
@settings(max_examples=30, deadline=None)
def test_with_slack_the_step_gets_no_longer_and_projecting_twice_changes_nothing(drawn: tuple[Tensor, Tensor]) -> None:
    step, constraints = drawn
    once = project(step, constraints).step
    assert once.norm() <= step.norm() * (1 + 1e-9)
    torch.testing.assert_close(project(once, constraints).step, once, atol=2e-6 * float(step.norm()), rtol=0)


@pytest.mark.slow
@given(problems)
@settings(max_examples=30, deadline=None)
def test_more_slack_moves_less_and_endless_slack_not_at_all(drawn: tuple[Tensor, Tensor]) -> None:
    step, constraints = drawn
    distances = [distance(project(step, constraints, epsilon), step) for epsilon in (0.0, 0.5, 1.0, 4.0, 1e3)]
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(distances))
    assert project(step, constraints, math.inf).step is step


@pytest.mark.slow
@given(problems, st.randoms())
@settings(max_examples=30, deadline=None)
def test_order_of_skills_is_irrelevant_for_the_qp(drawn: tuple[Tensor, Tensor], random: object) -> None:
    step, constraints = drawn
    order = list(range(len(constraints)))
    random.shuffle(order)  # type: ignore[attr-defined]
    expected, permuted = project(step, constraints), project(step, constraints[order])
    torch.testing.assert_close(permuted.step, expected.step, atol=1e-5, rtol=0)
    torch.testing.assert_close(permuted.slack, expected.slack[order], atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@given(problems)
@settings(max_examples=30, deadline=None)
def test_qp_moves_no_more_than_sequential_projection(drawn: tuple[Tensor, Tensor]) -> None:
    step, constraints = drawn
    sequential = project(step, constraints, method="sequential_margin", sweeps=10_000)
    assert (sequential.slack >= -1e-6 * sequential.norms * step.norm()).all()
    assert distance(project(step, constraints), step) <= distance(sequential, step) * (1 + 1e-6) + 1e-6


@pytest.mark.slow
@given(problems, st.lists(st.sampled_from([1e-6, 1e-3, 1.0, 1e6]), min_size=6, max_size=6), st.sampled_from([0.0, 1.0]))
@settings(max_examples=30, deadline=None)
def test_rescaling_gradients_with_their_slack_changes_nothing(
    drawn: tuple[Tensor, Tensor], factors: list[float], epsilon: float
) -> None:
    step, constraints = drawn
    scale = torch.tensor(factors[: len(constraints)], dtype=torch.float64)
    for method in ("qp", "sequential_margin"):
        expected = project(step, constraints, epsilon, method).step
        rescaled = project(step, constraints * scale[:, None], epsilon * scale, method).step
        torch.testing.assert_close(rescaled, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("scale", [1e-9, 1e-6, 1.0, 1e6])
def test_scale_of_fp32_gradients_and_step_is_irrelevant(scale: float) -> None:
    step, constraints = (tensor.float() for tensor in problem(3, 4, parameters=20_000))
    expected = project(step, constraints).step
    torch.testing.assert_close(project(step, constraints * scale).step, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(project(step * scale, constraints).step / scale, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_step_that_violates_nothing_comes_back_as_it_is(method: str) -> None:
    step, constraints = problem(0, 3)
    constraints = constraints * torch.sign(constraints @ step)[:, None]
    result = project(step, constraints, method=method)
    assert result.step is step
    assert not result.violated.any()
    assert not result.multipliers.any()
    assert result.moved == 0
    assert not result.stalled


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@given(problems)
@settings(max_examples=20, deadline=None)
def test_what_a_method_reports_is_true_of_the_step_that_it_returns(method: str, drawn: tuple[Tensor, Tensor]) -> None:
    step, constraints = drawn
    result = project(step, constraints, method=method)
    change = constraints @ result.step
    torch.testing.assert_close(result.change, change, atol=1e-9, rtol=1e-6)
    cosines = change / (constraints.norm(dim=1) * step.norm())
    assert result.missed == bool((cosines < -1e-5).any())
    assert result.moved == pytest.approx(distance(result, step) / float(step.norm()), abs=1e-9)


@pytest.mark.parametrize("method", ["qp", "sequential_margin"])
def test_one_constraint_has_the_closed_form(method: str) -> None:
    step, gradient, epsilon = torch.tensor([3.0, -4.0]), torch.tensor([0.0, 2.0]), 1.0
    result = project(step, gradient[None], epsilon, method)
    # lambda = -(<g, d> + eps) / |g|^2 = 7 / 4
    assert result.multipliers.tolist() == pytest.approx([1.75])
    assert result.step.tolist() == pytest.approx([3.0, -0.5])
    assert result.violated.tolist() == [True]
    assert result.change.tolist() == pytest.approx([-1.0])
    assert result.cosines.tolist() == pytest.approx([-0.8])


@pytest.mark.parametrize("method", ["qp", "sequential_margin", "pcgrad"])
def test_orthogonal_constraints_add_up(method: str) -> None:
    step = torch.tensor([-1.0, -2.0, 5.0])
    constraints = torch.tensor([[2.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
    result = project(step, constraints, method=method)
    assert result.step.tolist() == pytest.approx([0.0, 0.0, 5.0], abs=1e-6)
    assert result.multipliers.tolist() == pytest.approx([0.5, 0.5])


def test_pcgrad_leaves_conflicting_constraints_violated_where_the_qp_does_not() -> None:
    step = torch.tensor([-1.0, -1.0])
    constraints = torch.tensor([[1.0, 0.0], [-0.8, 0.6]])
    assert project(step, constraints, method="pcgrad").slack.min() < -0.1
    assert project(step, constraints, method="qp").slack.min() > -1e-6


def test_none_measures_and_leaves_the_step() -> None:
    step, constraints = torch.tensor([-1.0, 1.0]), torch.eye(2)
    result = project(step, constraints, method="none")
    assert result.step is step
    assert result.violated.tolist() == [True, False]
    assert result.slack.tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("method", ["qp", "sequential_margin"])
def test_duplicate_zero_and_opposite_gradients_are_safe(method: str) -> None:
    step, constraints = problem(5, 2)
    expected = project(step, constraints, method="qp").step
    degenerate = torch.cat([constraints, constraints[:1], 1e3 * constraints[:1], torch.zeros_like(constraints[:1])])
    result = project(step, degenerate, method=method, sweeps=1000)
    if method == "qp":
        torch.testing.assert_close(result.step, expected, atol=1e-5, rtol=0)
    assert (constraints @ result.step >= -1e-5).all()
    assert result.multipliers[-1] == 0
    assert result.norms[-1] == 0
    # g and -g: the projected step is orthogonal to both.
    both = project(step, torch.stack([constraints[0], -constraints[0]]), method=method)
    assert abs(float(constraints[0] @ both.step)) < 1e-5


def test_a_step_against_every_gradient_stalls_at_zero() -> None:
    constraints = problem(7, 4)[1]
    step = -constraints.sum(0)
    result = project(step, constraints)
    assert result.step.norm() < 1e-5 * step.norm()
    assert result.stalled
    assert not project(problem(7, 4)[0], constraints).stalled


def test_a_zero_step_stays_zero() -> None:
    step = torch.zeros(4)
    assert project(step, torch.eye(4)).step is step
    assert project(step, torch.eye(4), -1.0).step.tolist() == pytest.approx([1.0] * 4)
    # A cosine is relative to the step's length.
    assert project(step, torch.eye(4), -0.2, epsilon_kind="cosine").step is step


def test_negative_slack_is_used_where_feasible_and_reported_where_not() -> None:
    step, constraints = torch.tensor([1.0, 1.0]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    feasible = project(step, constraints[:1], -3.0)
    assert feasible.feasible
    assert feasible.step.tolist() == pytest.approx([3.0, 1.0])
    for method in ("qp", "sequential_margin"):
        infeasible = project(step, constraints, -3.0, method)
        assert not infeasible.feasible
        assert infeasible.step.tolist() == pytest.approx([0.0, 1.0], abs=1e-5)  # as with epsilon 0
    assert not project(step, torch.zeros(1, 2), -1.0).feasible


def test_a_skill_without_signal_does_not_take_the_wanted_gain_from_the_others() -> None:
    found = project(torch.tensor([0.1, -1.0]), torch.tensor([[1.0, 0.0], [0.0, 0.0]]), -0.5)
    assert not found.feasible
    assert found.step.tolist() == pytest.approx([0.5, -1.0])
    assert not found.missed


def test_a_constraint_that_the_sweeps_leave_violated_is_reported() -> None:
    step, angle = torch.tensor([0.3, -1.0]), math.acos(-0.995)
    constraints = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]])
    assert project(step, constraints, method="sequential_margin").missed
    for found in (
        project(step, constraints, method="sequential_margin", sweeps=10_000),
        project(step, constraints),
    ):
        assert not found.missed
        assert found.slack.min() >= -1e-5
    assert project(step, constraints, method="none").missed
    assert not project(-step, torch.tensor([[0.0, 1.0]])).missed


def test_epsilon_as_a_cosine_and_of_each_skill() -> None:
    step, constraints = torch.tensor([-3.0, -4.0]), torch.tensor([[10.0, 0.0], [0.0, 0.1]])
    by_cosine = project(step, constraints, 0.5, epsilon_kind="cosine")
    assert by_cosine.step.tolist() == pytest.approx([-2.5, -2.5])  # no cosine below -0.5, |d| = 5
    absolute = project(step, constraints, torch.tensor([10.0, math.inf]))
    assert absolute.step.tolist() == pytest.approx([-1.0, -4.0])


def test_predicted_change_is_the_measured_change_of_a_quadratic() -> None:
    step, directions = problem(11, 3)
    theta = problem(12, 1)[0]

    def objective(at: Tensor) -> Tensor:
        return -(directions @ at).square() / 2

    gradients = -(directions @ theta)[:, None] * directions
    result = project(step, gradients)
    assert result.violated.any()
    rate = 1e-6
    measured = (objective(theta + rate * result.step) - objective(theta)) / rate
    torch.testing.assert_close(measured, result.change, atol=1e-2, rtol=1e-4)


@pytest.mark.slow
def test_gram_of_long_fp32_vectors_is_nearly_exact() -> None:
    generator = torch.Generator().manual_seed(0)
    constraints = torch.rand(3, 1_000_003, generator=generator)
    exact = constraints.double() @ constraints.double().T
    torch.testing.assert_close(constraint_gram(constraints), exact, rtol=2e-7, atol=0)


def test_lists_of_tensors_equal_one_flat_vector_and_in_place_writes_over_the_step() -> None:
    step, constraints = (tensor.float() for tensor in problem(2, 3, parameters=60))
    steps = [step[:12].reshape(3, 4), step[12:60].reshape(2, 4, 6)]
    gradients = [constraints[:, :12].reshape(3, 3, 4), constraints[:, 12:60].reshape(3, 2, 4, 6)]
    flat = project(step, constraints)
    parts = project(steps, gradients)
    assert [part.shape for part in parts.step] == [(3, 4), (2, 4, 6)]
    torch.testing.assert_close(torch.cat([part.reshape(-1) for part in parts.step]), flat.step)
    torch.testing.assert_close(parts.multipliers, flat.multipliers)

    known = project([part.clone() for part in steps], gradients, gram=constraint_gram(gradients))
    torch.testing.assert_close(known.multipliers, flat.multipliers)
    copies = [part.clone() for part in steps]
    written = project(copies, gradients, in_place=True)
    assert written.step is copies
    assert torch.equal(copies[1], parts.step[1])
    assert torch.equal(project(step.clone(), constraints).step, flat.step)


def test_low_precision_and_strided_input() -> None:
    step, constraints = (tensor.float() for tensor in problem(2, 2))
    low = project(step.bfloat16(), constraints.bfloat16())
    assert low.step.dtype == torch.bfloat16
    torch.testing.assert_close(low.step.float(), project(step, constraints).step, atol=0.05, rtol=0.02)
    strided = project(step.repeat_interleave(2)[::2], constraints.T.contiguous().T)
    torch.testing.assert_close(strided.step, project(step, constraints).step)


def test_no_constraints_leave_the_step() -> None:
    step = torch.ones(3)
    assert project(step, torch.empty(0, 3)).step is step


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_named_and_nothing_is_written(value: float) -> None:
    step, constraints = (tensor.float() for tensor in problem(1, 3))
    before = step.clone()
    constraints[1, 5] = value
    with pytest.raises(NotFiniteError, match="constraint 1") as caught:
        project(step, constraints, in_place=True)
    assert caught.value.constraints == [1]
    assert torch.equal(step, before)
    step[0] = value
    with pytest.raises(NotFiniteError, match="the step"):
        project(step, constraints[:1])
    with pytest.raises(NotFiniteError):
        constraint_gram(constraints)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"constraints": torch.ones(2, 4)}, r"step \(3,\), constraints \(2, 4\)"),
        ({"constraints": [torch.ones(2, 3), torch.ones(2, 3)]}, "step has 1 tensors, but constraints 2"),
        ({"method": "gem"}, "method must be one of qp"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"epsilon": [0.0, 0.0, 0.0]}, r"\(2,\) for 2 constraints"),
        ({"epsilon": 0.1, "method": "pcgrad"}, "pcgrad supports no slack"),
        ({"epsilon_kind": "percent"}, "epsilon_kind"),
        ({"gram": torch.eye(3)}, r"gram must be \(2, 2\)"),
        ({"step": torch.ones(3, dtype=torch.long)}, "floating"),
    ],
)
def test_mistakes_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        project(**{"step": torch.ones(3), "constraints": torch.ones(2, 3)} | arguments)


@pytest.mark.slow  # two processes that import torch
def test_two_ranks_give_the_multipliers_and_the_step_of_one() -> None:
    step, constraints = (tensor.float() for tensor in problem(9, 4, parameters=1001))
    expected = project(step, constraints, 0.1)
    assert expected.violated.any()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_project_shard, args=(folder, step, constraints), nprocs=2)
        ranks = [np.load(Path(folder) / f"{rank}.npz") for rank in range(2)]
        parts = [{name: rank[name] for name in rank.files} for rank in ranks]
    assert (parts[0]["multipliers"] == parts[1]["multipliers"]).all()
    np.testing.assert_allclose(parts[0]["multipliers"], expected.multipliers.numpy(), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(
        np.concatenate([part["step"] for part in parts]), expected.step.numpy(), rtol=1e-5, atol=1e-5
    )
    assert [part["names_constraint"].item() for part in parts] == [2, 2]
    moved = project(step, constraints, 0.1, inverse_metric=INVERSE)
    assert moved.violated.any()
    assert (parts[0]["moved_multipliers"] == parts[1]["moved_multipliers"]).all()
    np.testing.assert_allclose(parts[0]["moved_multipliers"], moved.multipliers.numpy(), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(
        np.concatenate([part["moved"] for part in parts]), moved.step.numpy(), rtol=1e-5, atol=1e-5
    )
    signs = random_signs([step], 3)[0]
    assert signs.unique().tolist() == [-1, 1]
    assert np.concatenate([part["signs"] for part in parts]).tolist() == signs.tolist()
    turned = step + signs * (expected.step - step)
    change = (constraints.double() @ turned.double()).numpy()
    for part in parts:
        np.testing.assert_allclose(part["change"], change, rtol=1e-5, atol=1e-5)


def _project_shard(rank: int, folder: str, step: Tensor, constraints: Tensor) -> None:
    """One rank of two: uneven shards, of which rank 1 also holds an empty one; then a NaN on rank 0 alone."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    bounds = [(0, 700), (700, 1001)][rank]
    shard, gradients = step[slice(*bounds)], constraints[:, slice(*bounds)]
    steps, rows = ([shard], [gradients]) if rank == 0 else ([shard, shard[:0]], [gradients, gradients[:, :0]])
    result = project(steps, rows, 0.1, process_group=dist.group.WORLD)
    inverse = INVERSE[slice(*bounds)]
    inverses = [inverse] if rank == 0 else [inverse, inverse[:0]]
    moved = project(steps, rows, 0.1, process_group=dist.group.WORLD, inverse_metric=inverses)
    mesh = init_device_mesh("cpu", (2,))
    signs = random_signs([distribute_tensor(step, mesh, [Shard(0)])], 3)[0]
    all_signs = random_signs([step], 3)[0][slice(*bounds)]
    turned = [shard + all_signs * (result.step[0] - shard), *result.step[1:]]
    change = resigned(result, rows, turned, dist.group.WORLD).change
    gram = constraint_gram(rows, dist.group.WORLD)
    again = project(steps, rows, 0.1, gram=gram, process_group=dist.group.WORLD)
    assert torch.equal(again.multipliers, result.multipliers)

    corrupted = [row.clone() for row in rows]
    if rank == 0:
        corrupted[0][2, 0] = math.nan
    with pytest.raises(NotFiniteError) as caught:
        project(steps, corrupted, process_group=dist.group.WORLD)
    np.savez(
        Path(folder) / f"{rank}.npz",
        multipliers=result.multipliers.numpy(),
        step=torch.cat(result.step).numpy(),
        names_constraint=caught.value.constraints[0],
        moved_multipliers=moved.multipliers.numpy(),
        moved=torch.cat(moved.step).numpy(),
        signs=signs.numpy(),
        change=change.numpy(),
    )
    dist.barrier()  # gloo sometimes aborts if a rank exits while the other one still uses the group
    dist.destroy_process_group()


@pytest.mark.parametrize(("recovery", "moved"), [(0.5, 0.0), (math.inf, 2.0)])
def test_with_bounded_recovery_a_step_of_zero_stays_zero(recovery: float, moved: float):
    """A module that the optimiser left alone has no length by which a demanded gain could be bounded."""
    result = project(torch.zeros(3), torch.tensor([[1.0, 0.0, 0.0]]), -2.0, recovery=recovery)
    assert result.step.norm() == pytest.approx(moved)
