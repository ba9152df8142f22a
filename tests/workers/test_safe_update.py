import pytest
import torch

from workers.displacement import snapshot
from workers.safe_update import Protection, SafeUpdate


def protection(method="qp", epsilon=0.0, names=("a", "b")):
    return Protection(list(range(len(names))), list(names), method, epsilon, "absolute")


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


def test_a_skill_without_signal_is_reported_as_unprotected():
    shards, update = begin([torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.zeros(2, 1, 1)])
    shards[0] -= 1.0
    update.after_step(shards)
    assert update.metrics()["projection/unprotected_skills"] == 1


def test_method_none_measures_and_changes_nothing():
    shards, update = begin([torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0]]])], method="none")
    shards[0] -= 0.5
    update.after_step(shards)
    assert shards[0].tolist() == [0.5, 1.5]
    assert update.metrics()["projection/cosine/a"] < 0
