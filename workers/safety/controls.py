"""Controls of the projection: a correction that knows no skill and moves the parameters as much."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from workers.geometry import KEPT
from workers.projection import Projection


def random_signs(parameters: Sequence[Any], seed: int) -> list[Tensor]:
    """+1 or -1 for each element of the local shards, by chance; the same element has the same sign on any ranks.

    With g_s and signs r, projection onto the random gradients r g_s with the multipliers of g_s moves every parameter
    as far as projection onto g_s, in a direction that no skill gave.
    """
    signs = []
    for number, parameter in enumerate(parameters):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
        whole = torch.randint(0, 2, parameter.shape, generator=generator, dtype=torch.int8) * 2 - 1
        if isinstance(parameter, DTensor):
            # Without a source rank every rank takes its part of an equal local copy: nothing is sent.
            mesh, placements = parameter.device_mesh, parameter.placements
            whole = distribute_tensor(whole.to(parameter.device), mesh, placements, src_data_rank=None).to_local()
        signs.append(whole.to(parameter.device))
    return signs


def resigned(projection: Projection, constraints: Sequence[Tensor], step: Sequence[Tensor], group: Any) -> Projection:
    """A projection's measures after its correction got random signs: <g_s, step>, and what is left violated.

    Lengths stay: signs change no element's size. group: the ranks that hold shards.
    """
    pairs = zip(constraints, step, strict=True)
    change = torch.stack([rows.flatten(1).double().mv(part.flatten().double()) for rows, part in pairs]).sum(0)
    if group is not None:
        torch.distributed.all_reduce(change, group=group)
    change = change.cpu()
    slack = projection.slack + (change - projection.change)
    missed = bool((slack < -KEPT * projection.norms * projection.length).any())
    return replace(projection, change=change, slack=slack, missed=missed)
