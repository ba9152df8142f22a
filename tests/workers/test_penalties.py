import pytest
import torch

from workers.penalties import Penalty, Rehearsal


def shards(*values: float) -> list[torch.Tensor]:
    return [torch.tensor(values[:1]), torch.tensor(values[1:])]


def test_the_first_stage_has_no_penalty():
    gradients = shards(1.0, 2.0, 3.0)
    assert Penalty().add_gradient(gradients, shards(9.0, 9.0, 9.0), strength=5.0) == 0.0
    assert gradients[1].tolist() == [2.0, 3.0]
    assert Penalty().state() == {}


def test_l2_grows_with_the_distance_from_the_parameters_at_the_start_of_the_stage():
    penalty, old = Penalty(), shards(0.0, 1.0, 2.0)
    penalty.begin_stage(1, old, None)
    old[0] += 100.0  # the optimiser keeps using the same memory
    gradients = shards(0.0, 0.0, 0.0)
    value = penalty.add_gradient(gradients, shards(2.0, 1.0, 5.0), strength=0.5)
    assert [gradient.tolist() for gradient in gradients] == [[1.0], [0.0, 1.5]]
    assert value == pytest.approx(0.5 * 0.5 * (2.0**2 + 3.0**2))


def test_rehearsal_descends_the_negative_log_likelihood_by_hand():
    gradients = shards(1.0, 0.0, 2.0)
    value = Rehearsal(shards(2.0, 4.0, -2.0), level=-0.5).add_gradient(gradients, strength=0.25)
    assert [gradient.tolist() for gradient in gradients] == [[0.5], [-1.0, 2.5]]
    assert value == 0.125


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_rehearsal_s_length_shows_a_broken_gradient_beside_a_finite_level(broken: float):
    assert Rehearsal(shards(2.0, 4.0, -2.0), level=-0.5).square() == 24.0
    assert not Rehearsal(shards(2.0, broken, 0.0), level=-0.5).square().isfinite()


def test_ewc_weighs_by_the_information_of_all_finished_stages():
    penalty = Penalty()
    penalty.begin_stage(1, shards(9.0, 9.0, 9.0), shards(1.0, 0.0, 2.0))
    penalty.begin_stage(2, shards(0.0, 0.0, 0.0), shards(0.0, 0.0, 1.0))
    gradients = shards(0.0, 0.0, 0.0)
    value = penalty.add_gradient(gradients, shards(1.0, 1.0, 1.0), strength=2.0)
    assert [gradient.tolist() for gradient in gradients] == [[2.0], [0.0, 6.0]]
    assert value == pytest.approx(0.5 * 2.0 * (1.0 + 3.0))


def test_the_anchor_and_the_information_survive_a_checkpoint_in_their_order():
    penalty, restored = Penalty(), Penalty()
    many = [torch.tensor([float(number)]) for number in range(12)]
    penalty.begin_stage(3, many, [part + 1 for part in many])
    restored.restore(penalty.state() | {"average.write.0": torch.zeros(1)})
    assert restored.stage == 3
    assert torch.equal(torch.cat(restored.anchor), torch.cat(many))
    assert torch.equal(torch.cat(restored.importance), torch.cat(many) + 1)


def test_what_a_checkpoint_brought_to_the_host_is_moved_once_to_the_device_of_the_weights():
    """Torch's device ``meta`` stands for an accelerator."""
    saved, penalty = Penalty(), Penalty()
    saved.begin_stage(1, shards(0.0, 1.0, 2.0), shards(1.0, 1.0, 1.0))
    penalty.restore(saved.state())
    on_device = [shard.to("meta") for shard in shards(1.0, 1.0, 1.0)]
    assert penalty.add_gradient(on_device, on_device, strength=2.0).device.type == "meta"
    assert {part.device.type for part in (*penalty.anchor, *penalty.importance)} == {"meta"}
