import math

import pytest
import torch
import torch.multiprocessing as multiprocessing

from workers.displacement import displacement_norm, snapshot, trainable_shards


def test_the_norm_is_that_of_the_difference_over_all_tensors():
    before = [torch.zeros(2, 2), torch.zeros(3)]
    after = [torch.full((2, 2), 1.0), torch.tensor([0.0, 2.0, 0.0])]
    assert displacement_norm(before, after) == pytest.approx(math.sqrt(4 + 4))


def test_tiny_steps_on_large_weights_are_summed_in_double_precision():
    before = [torch.full((1000,), 1.0)]
    after = [torch.full((1000,), 1.0 + 2**-23)]
    assert displacement_norm(before, after) == pytest.approx(math.sqrt(1000) * 2**-23, rel=1e-12)


def test_only_trainable_parameters_count_and_a_snapshot_does_not_move_with_them():
    first, second = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 1, bias=False)
    module = torch.nn.Sequential(first, second)
    first.weight.requires_grad_(False)
    before = snapshot(trainable_shards(module))
    with torch.no_grad():
        first.weight.add_(5.0)
        second.weight.add_(3.0)
    assert displacement_norm(before, trainable_shards(module)) == pytest.approx(math.sqrt(18))


def test_lists_of_different_shapes_are_refused_with_the_shapes():
    with pytest.raises(ValueError, match=r"\(2,\).*before.*\(3,\).*after"):
        displacement_norm([torch.zeros(2)], [torch.zeros(3)])


def _norm_on_rank(rank: int, address: str, results: multiprocessing.SimpleQueue) -> None:
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    step = torch.arange(8, dtype=torch.float32)[4 * rank : 4 * rank + 4]
    results.put(displacement_norm([torch.zeros(4)], [step]))
    torch.distributed.destroy_process_group()


@pytest.mark.slow  # two processes that import torch
def test_two_ranks_agree_with_one(tmp_path):
    results = multiprocessing.get_context("spawn").SimpleQueue()
    multiprocessing.spawn(_norm_on_rank, args=(f"file://{tmp_path}/store", results), nprocs=2)
    whole = displacement_norm([torch.zeros(8)], [torch.arange(8, dtype=torch.float32)])
    assert [results.get(), results.get()] == [whole, whole]
