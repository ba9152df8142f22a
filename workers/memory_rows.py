"""Samples that are in a batch for constraint gradients only, and how the rest is trained on without them."""

import math

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

MEMORY = "memory_only"  # (B,) bool; the trainer puts it into the batch where a protocol has memory prompts


def without_memory(data: TensorDict, ranks: int, micro_batch_size: int | None) -> TensorDict:
    """This rank's samples that are trained on, with verl's batch sizes scaled to them; the same object if all are.

    So the loss is a mean over these samples alone, in as many optimiser steps as before.

    Args:
        data: what ``train_mini_batch`` gets. ranks: data-parallel ranks. micro_batch_size: the configured one, a rank.

    Raises:
        ValueError: the samples left do not divide into the optimiser's mini-batches.
    """
    rows = torch.nonzero(~data[MEMORY]).flatten().tolist() if MEMORY in set(data.keys()) else list(range(len(data)))
    if len(rows) == len(data):
        return data
    steps = len(data) * ranks // tu.get(data, "mini_batch_size")
    own, rest = divmod(len(rows), steps)
    if rest or not own:
        raise ValueError(f"{len(rows)} of a rank's {len(data)} samples are trained on: not {steps} equal mini-batches")
    part = tu.index_select_tensor_dict(data, rows)
    tu.assign_non_tensor(part, mini_batch_size=own * ranks, global_batch_size=own * ranks)
    if micro_batch_size:
        tu.assign_non_tensor(part, micro_batch_size_per_gpu=math.gcd(own, micro_batch_size))
    return part
