"""What runs on a GPU keeps its tensors there: the pure mathematics of an update on an accelerator by name.

Values are compared with the host's, which sums in another order.
"""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.workers.logical_device import DEVICE, LogicalDevice, MixedDevices, OnDevice
from workers.constraints import GradientAverages
from workers.displacement import displacement_norm, snapshot
from workers.geometry import Solver
from workers.penalties import Penalty, Rehearsal
from workers.projection import Projection, constraint_gram, project
from workers.safe_update import SafeUpdate
from workers.safety.controls import random_signs
from workers.safety.metric import adam_inverse_metric
from workers.update_request import Constraint, Protection


@pytest.fixture(autouse=True)
def accelerator() -> Iterator[None]:
    with LogicalDevice():
        yield


def there(*tensors: Tensor) -> list[Tensor]:
    return [tensor.to(DEVICE) for tensor in tensors]


def host(tensors: list[Tensor]) -> list[Tensor]:
    assert all(isinstance(tensor, OnDevice) for tensor in tensors), "a result left the accelerator"
    return [tensor.cpu() for tensor in tensors]


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def test_the_accelerator_refuses_what_a_gpu_refuses():
    (matrix,) = there(torch.eye(2))
    assert matrix.device == DEVICE
    assert (matrix @ torch.ones(2, device=DEVICE) * torch.tensor(2.0)).tolist() == [2.0, 2.0]
    assert matrix[torch.tensor([True, False])].tolist() == [[1.0, 0.0]]
    assert not isinstance(matrix.cpu(), OnDevice)
    refused = (
        lambda: matrix @ torch.ones(2),
        lambda: torch.stack([torch.ones(2, 2), matrix]),
        lambda: torch.ones(2)[matrix.long()],
        lambda: torch.ones(2).add_(matrix[0]),
        lambda: torch.dot(torch.ones(2), torch.ones(2, device=DEVICE)),
    )
    for operation in refused:
        with pytest.raises(MixedDevices, match="is on the host"):
            operation()


@pytest.mark.slow
@pytest.mark.parametrize("method", [*get_args(Solver), "none"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_projection_stays_on_the_accelerator(method: str, in_place: bool):
    step, constraints = drawn(0, (4, 3), (5,)), drawn(1, (2, 4, 3), (2, 5))
    inverse = [part.square() + 0.1 for part in drawn(2, (4, 3), (5,))]
    options: dict[str, Any] = {"inverse_metric": inverse, "noise": [0.1, 0.2]} if method == "qp" else {}
    expected = project(snapshot(step), constraints, 0.0, method, in_place=in_place, **options)
    if options:
        options["inverse_metric"] = there(*inverse)
    found: Projection = project(there(*step), there(*constraints), 0.0, method, in_place=in_place, **options)
    assert_close(host(found.step), expected.step)
    assert_close(found.multipliers, expected.multipliers, rtol=1e-5, atol=1e-6)
    gram = constraint_gram(there(*constraints))
    assert_close(gram, constraint_gram(constraints), rtol=1e-5, atol=1e-5)
    again = project(there(*step), there(*constraints), 0.0, method, gram=gram)
    assert_close(host(again.step), project(step, constraints, 0.0, method).step)


@pytest.mark.parametrize("space", ["displacement", "gradient"])
@pytest.mark.parametrize("control", [False, True])
def test_an_update_is_projected_where_its_shards_are(space: str, control: bool):
    def updated(device: str | torch.device) -> list[Tensor]:
        shards = [part.to(device) for part in drawn(3, (4, 3), (5,))]
        constraints = [part.to(device) for part in drawn(4, (2, 4, 3), (2, 5))]
        protection = Protection([Constraint("a", 0), Constraint("b", 1)], "qp", 0.0, "absolute", space)
        signs = random_signs(shards, 7) if control else None
        update = SafeUpdate(protection, constraints, snapshot(shards), signs=signs)
        moves = [part.to(device) for part in drawn(5, (4, 3), (5,))]
        if space == "gradient":
            assert update.before_step(moves)
            return moves
        for shard, move in zip(shards, moves, strict=True):
            shard.add_(move)
        update.after_step(shards)
        assert update.metrics()["projection/projected_steps"] == 1
        return shards

    assert_close(host(updated(DEVICE)), updated("cpu"))


def test_penalties_follow_the_weights_after_a_checkpoint_from_the_host():
    weights, fisher, moved = drawn(6, (4, 3), (5,)), drawn(7, (4, 3), (5,)), drawn(8, (4, 3), (5,))
    saved, restored = Penalty(), Penalty()
    saved.begin_stage(1, weights, fisher)
    restored.restore(saved.state())
    expected, found = [torch.zeros_like(part) for part in moved], there(*(torch.zeros_like(part) for part in moved))
    value = saved.add_gradient(expected, moved, 0.5)
    assert restored.add_gradient(found, there(*moved), 0.5).item() == value.item()
    Rehearsal(weights, -0.5).add_gradient(expected, 0.25)
    Rehearsal(there(*weights), -0.5).add_gradient(found, 0.25)
    assert_close(host(found), expected)
    restored.begin_stage(2, there(*moved), there(*fisher))
    assert_close(host(restored.importance), [part + part for part in fisher])


def test_averages_of_a_checkpoint_are_mixed_with_gradients_of_the_accelerator():
    saved, restored = GradientAverages(), GradientAverages()
    first, second = drawn(9, (2, 4), (2, 4))
    saved.smooth(["a", "b"], [first.clone()], [True, True], 0.5)
    restored.restore(saved.state())
    expected, found = [second.clone()], there(second)
    saved.smooth(["a", "b"], expected, [True, False], 0.5)
    restored.smooth(["a", "b"], found, [True, False], 0.5)
    assert_close(host(found), expected)


def test_adam_s_metric_and_the_displacement_come_from_the_accelerator_s_moments():
    def measured(device: str | torch.device) -> tuple[list[Tensor], float]:
        layers = [part.to(device).requires_grad_() for part in drawn(10, (4, 3), (5,))]
        optimizer = torch.optim.AdamW(layers, lr=0.1, foreach=False)
        before = snapshot(layer.detach() for layer in layers)
        for layer, gradient in zip(layers, drawn(11, (4, 3), (5,)), strict=True):
            layer.grad = gradient.to(device)
        optimizer.step()
        inverse = adam_inverse_metric(optimizer, layers)
        assert inverse is not None
        return inverse, displacement_norm(before, [layer.detach() for layer in layers])

    (found, moved), (expected, distance) = measured(DEVICE), measured("cpu")
    assert_close(host(found), expected)
    assert moved == distance > 0
