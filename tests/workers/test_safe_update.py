from dataclasses import replace

import pytest
import torch

from workers.displacement import snapshot
from workers.projection import NotFiniteError
from workers.safe_update import SafeUpdate
from workers.safety.angles import Angles
from workers.safety.levels import relative_noise
from workers.update_request import Constraint, Protection


def protection(method="qp", epsilon=0.0, names=("a", "b"), space="displacement"):
    constraints = [Constraint(name, skill) for skill, name in enumerate(names)]
    return Protection(constraints, method, epsilon, "absolute", space)


def begin(constraints, **options):
    shards = [torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])]
    names = [chr(ord("a") + index) for index in range(len(constraints[0]))]
    return shards, SafeUpdate(protection(names=names, **options), constraints, snapshot(shards))


def test_a_step_that_harms_nobody_keeps_its_bits():
    shards, update = begin([torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0]]])])
    shards[0] += torch.tensor([0.1, -0.3])
    expected = [shard.clone() for shard in shards]
    update.after_step(shards)
    assert all(torch.equal(shard, kept) for shard, kept in zip(shards, expected, strict=True))
    assert update.metrics()["projection/projected_steps"] == 0


def test_a_harmful_step_is_projected_and_written_into_the_parameters():
    shards, update = begin([torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0]]])])
    shards[0] += torch.tensor([-0.5, 0.25])
    shards[1] -= 0.5
    update.after_step(shards)
    assert shards[0].tolist() == [1.0, 2.25]
    assert shards[1].tolist() == [[2.5]]
    metrics = update.metrics()
    assert metrics["projection/multiplier/a"] == pytest.approx(0.5)
    assert metrics["projection/predicted_change/a"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["projection/projected_steps"] == 1


def test_the_whole_displacement_counts_over_several_steps():
    shards, update = begin([torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0]]])])
    shards[0] += torch.tensor([0.5, 0.0])
    update.after_step(shards)
    shards[0] += torch.tensor([-0.4, 0.0])  # still above the start: allowed
    update.after_step(shards)
    assert shards[0].tolist() == pytest.approx([1.1, 2.0])
    shards[0] += torch.tensor([-0.4, 0.0])  # below it
    update.after_step(shards)
    assert shards[0].tolist() == pytest.approx([1.0, 2.0])
    assert update.metrics()["projection/projected_steps"] == 1


def test_what_is_not_finite_is_taken_back_and_counted():
    shards, update = begin([torch.tensor([[float("nan"), 0.0]]), torch.tensor([[[0.0]]])])
    shards[0] += 1.0
    update.after_step(shards)
    assert shards[0].tolist() == [1.0, 2.0]
    assert update.metrics() == {"projection/projected_steps": 0.0, "projection/skipped_steps": 1.0}


@pytest.mark.parametrize(
    ("epsilon", "second", "infeasible", "moved_to"),
    [
        (-0.25, [0.0, 1.0], 0.0, [1.25, 2.25]),  # both skills gain as much as required
        (-0.25, [-1.0, 0.0], 1.0, [1.0, 1.0]),  # their required gains conflict: with 0 instead, neither loses
    ],
)
def test_a_gain_that_no_step_gives_is_counted_and_taken_as_none(epsilon, second, infeasible, moved_to):
    shards, update = begin([torch.tensor([[1.0, 0.0], second]), torch.zeros(2, 1, 1)], epsilon=epsilon)
    shards[0] += torch.tensor([-0.5, -1.0])
    update.after_step(shards)
    assert update.metrics()["projection/infeasible"] == infeasible
    assert shards[0].tolist() == pytest.approx(moved_to, abs=1e-5)


def test_a_skill_without_signal_is_reported_as_unprotected():
    shards, update = begin([torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.zeros(2, 1, 1)])
    shards[0] -= 1.0
    update.after_step(shards)
    assert update.metrics()["projection/unprotected_skills"] == 1
    assert update.metrics()["projection/unprotected/b"] == 1


@pytest.mark.parametrize(("second", "unprotected"), [([0.0, 1.0], 0), ([0.0, 0.0], 1)])
def test_a_skill_with_one_live_constraint_of_two_is_protected(second, unprotected):
    both = [Constraint("a.rollouts", 0), Constraint("a.solutions", 0, [])]
    shards = [torch.tensor([1.0, 2.0])]
    constraints = [torch.tensor([[0.0, 0.0], second])]
    update = SafeUpdate(Protection(both, "qp", 0.0, "absolute"), constraints, snapshot(shards))
    shards[0] -= 1.0
    update.after_step(shards)
    assert update.metrics()["projection/unprotected_skills"] == unprotected
    assert update.metrics()["projection/unprotected/a.rollouts"] == 1


def test_counts_are_of_all_steps_of_an_update():
    shards, update = begin([torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.zeros(2, 1, 1)], epsilon=-0.25)
    for _ in range(2):
        shards[0] += torch.tensor([-0.5, 0.0])  # the whole step is undone
        update.after_step(shards)
    numbers = update.metrics()
    assert [numbers[f"projection/{name}"] for name in ("infeasible", "stalled", "violated_steps")] == [2, 2, 0]


def test_method_none_measures_and_changes_nothing():
    shards, update = begin([torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0]]])], method="none")
    shards[0] -= 0.5
    update.after_step(shards)
    assert shards[0].tolist() == [0.5, 1.5]
    assert update.metrics()["projection/cosine/a"] < 0


@pytest.mark.parametrize("space", ["gradient", "displacement"])
def test_method_none_changes_nothing_where_a_constraint_is_not_finite(space):
    shards, update = begin([torch.tensor([[float("inf"), 0.0]]), torch.tensor([[[0.0]]])], method="none", space=space)
    assert update.before_step([torch.tensor([1.0, 1.0]), torch.tensor([[1.0]])])
    shards[0] -= 0.5
    update.after_step(shards)
    assert shards[0].tolist() == [0.5, 1.5]
    assert update.skipped == 1


def test_an_optimiser_that_did_nothing_leaves_the_parameters_though_gain_is_asked_for():
    shards, update = begin([torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0]]])], epsilon=-1.0)
    update.after_step(shards)
    assert shards[0].tolist() == [1.0, 2.0]
    shards[0] += torch.tensor([0.0, 0.5])
    update.after_step(shards)
    assert shards[0].tolist() == [2.0, 2.5]


def test_in_gradient_space_the_gradient_is_projected_and_the_parameters_are_left_to_the_optimiser():
    shards, update = begin([torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0]]])], space="gradient")
    gradients = [torch.tensor([2.0, -3.0]), torch.tensor([[1.0]])]  # descending it would cost the skill 2
    update.before_step(gradients)
    assert gradients[0].tolist() == [0.0, -3.0]
    assert gradients[1].tolist() == [[1.0]]
    shards[0] -= 0.5
    update.after_step(shards)
    assert shards[0].tolist() == [0.5, 1.5]


@pytest.mark.parametrize("space", ["gradient", "displacement"])
def test_an_optimiser_may_not_step_in_gradient_space_where_something_is_not_finite(space):
    _, update = begin([torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0]]])], space=space)
    assert update.before_step([torch.tensor([1.0, 1.0]), torch.tensor([[1.0]])])
    assert update.before_step([torch.tensor([float("inf"), 1.0]), torch.tensor([[1.0]])]) == (space == "displacement")
    assert update.skipped == (space == "gradient")


def test_in_displacement_space_gradients_are_left_alone():
    _, update = begin([torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0]]])])
    gradients = [torch.tensor([2.0, -3.0]), torch.tensor([[1.0]])]
    update.before_step(gradients)
    assert gradients[0].tolist() == [2.0, -3.0]


def test_angles_are_measured_over_all_parameters_and_in_each_type_of_module():
    constraints = [
        torch.tensor([[1.0, 0.0], [1.0, 0.0]]),
        torch.tensor([[[2.0]], [[-1.0]]]),
        torch.tensor([[0.0], [3.0]]),
    ]
    angles = Angles.of(["a", "b"], constraints, ["q_proj", "v_proj", "q_proj"], None)
    assert angles.gram.tolist() == [[5.0, -1.0], [-1.0, 11.0]]
    metrics = angles.metrics()
    assert metrics["projection/pair_cosine/a~b"] == pytest.approx(-1 / 55**0.5)
    assert metrics["projection/module_cosine/v_proj/a~b"] == pytest.approx(-1.0)
    assert metrics["projection/module_cosine/q_proj/a~b"] == pytest.approx(1 / 10**0.5)
    with pytest.raises(NotFiniteError):
        Angles.of(["a"], [torch.tensor([[float("nan")]])], ["q_proj"], None)


def test_the_error_of_a_gradient_follows_from_the_cosine_of_its_halves():
    assert relative_noise(0.0) == pytest.approx(1.0)
    assert relative_noise(0.6) == pytest.approx(0.5)
    assert relative_noise(1.0) == 0.0
    assert relative_noise(float("nan")) == 0.0  # it has no two halves


def test_a_constraint_whose_halves_disagree_is_left_out_and_reported():
    shards, update = begin([torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1, 1)])
    update = replace(update, protection=replace(update.protection, agreement=0.1), agreements=[0.05, 0.5])
    shards[0] += torch.tensor([-0.5, -0.25])
    update.after_step(shards)
    assert shards[0].tolist() == [0.5, 2.0]  # only the second is protected
    metrics = update.metrics()
    assert (metrics["projection/left_out/a"], metrics["projection/left_out/b"]) == (1.0, 0.0)
    assert metrics["projection/predicted_change/a"] == pytest.approx(-0.5)


def test_an_uncertain_gradient_asks_for_a_margin_of_its_error_times_the_step():
    """One constraint along the first axis with relative error 0.5 (cosine 0.6): x_1 >= 0.5 |x|, so 30 degrees up."""
    shards, update = begin([torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0]]])])
    update = replace(update, protection=replace(update.protection, noise=1.0), agreements=[0.6])
    shards[0] += torch.tensor([0.0, 1.0])
    update.after_step(shards)
    moved = shards[0] - torch.tensor([1.0, 2.0])
    # The nearest point of the cone's border: the step's length along it, cos(30 degrees).
    along = 3**0.5 / 2
    assert moved.tolist() == pytest.approx([0.5 * along, along**2], abs=1e-5)


def test_modules_share_epsilon_by_their_part_of_the_gradient_s_square():
    """Squares 9 and 16 of 25: epsilon 1 is 0.36 and 0.64, and each module may lose its part alone."""
    constraints = [torch.tensor([[3.0, 0.0]]), torch.tensor([[[4.0]]])]
    grams = {"first": torch.tensor([[9.0]]), "second": torch.tensor([[16.0]])}
    shards, update = begin(constraints, epsilon=1.0)
    update = replace(
        update, protection=replace(update.protection, per_module=True), modules=["first", "second"],
        gram=torch.tensor([[25.0]]), of_modules=grams,
    )  # fmt: skip
    shards[0] += torch.tensor([-1.0, 0.5])
    shards[1] -= 0.1
    update.after_step(shards)
    assert shards[0].tolist() == pytest.approx([1 - 0.36 / 3, 2.5], abs=1e-6)
    assert shards[1].tolist() == [pytest.approx([2.9])]  # it loses 0.4 of its 0.64


def test_rollouts_levels_are_turned_into_their_objective_by_its_unit():
    one = Constraint("a", 0, level=0.5, anchor=0.6, unit=4.0)
    update = SafeUpdate(Protection([one], "qp", 0.3, "absolute", closed_loop=True), [torch.ones(1, 2)], [torch.ones(2)])
    assert update.epsilons == pytest.approx([(0.3 - 0.1) / 4])
