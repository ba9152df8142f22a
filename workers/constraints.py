"""Constraint gradients of skill-safe updates: an ascent gradient of each protected skill, where an update starts.

Source of the gradients: the step's own samples of that skill, with their group advantages (no sample is drawn for
them). The objective is the policy gradient's alone, without KL or entropy terms:

    J_s = 1/N_s sum_i 1/T_i sum_t ratio_it A_it        over the N_s samples i of skill s, on all ranks

so <g_s, x> is the first-order change of skill s in units of its advantages when the parameters move by x.
"""

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import no_padding_2_padding

from workers.displacement import local_shard

SKILL = "skill_id"  # (B,) long, which skill a sample belongs to; the trainer puts it into the batch
_WEIGHT = "constraint_weight"


def skill_gradients(engine: Any, data: TensorDict, skills: Sequence[int], micro_batch: dict[str, Any]) -> list[Tensor]:
    """Ascent gradients of these skills' objectives: for each trainable parameter (S, *shape of the local shard).

    Collective: every rank calls it with the same skills, and takes part in each backward pass even where it holds no
    sample of the skill. The engine must be in training mode; its gradients are zero afterwards.

    Args:
        engine: verl's FSDP engine. data: this rank's samples, as `train_mini_batch` gets them, with SKILL.
        skills: ids, in the order of the result. micro_batch: verl's keys that say how a batch is cut.
    """
    parameters = [parameter for parameter in engine.module.parameters() if parameter.requires_grad]
    gradients = [
        torch.zeros(
            len(skills), *local_shard(parameter).shape, dtype=torch.float32, device=local_shard(parameter).device
        )
        for parameter in parameters
    ]
    for row, skill in enumerate(skills):
        engine.optimizer_zero_grad()
        part = samples_of(data, skill, micro_batch, engine.get_data_parallel_group(), engine.get_data_parallel_size())
        engine.forward_backward_batch(part, loss_function=negative_objective, forward_only=False)
        for block, parameter in zip(gradients, parameters, strict=True):
            if parameter.grad is not None:
                block[row] = -local_shard(parameter.grad)
    engine.optimizer_zero_grad()
    return gradients


def samples_of(data: TensorDict, skill: int, micro_batch: dict[str, Any], group: Any, ranks: int) -> TensorDict:
    """This rank's samples of a skill, filled up with samples of weight 0 to the same number on every rank."""
    own = torch.nonzero(data[SKILL] == skill).flatten().tolist()
    counts = torch.tensor([len(own), len(own)])
    torch.distributed.all_reduce(counts[:1], op=torch.distributed.ReduceOp.SUM, group=group)
    torch.distributed.all_reduce(counts[1:], op=torch.distributed.ReduceOp.MAX, group=group)
    total, most = counts.tolist()
    size = min(micro_batch["micro_batch_size_per_gpu"] or len(data), max(most, 1))
    padded = -(-max(most, 1) // size) * size
    part = tu.index_select_tensor_dict(data, own + [0] * (padded - len(own)))
    weights = torch.zeros(padded)
    # FSDP takes the mean of the ranks' gradients.
    weights[: len(own)] = ranks / max(total, 1)
    part[_WEIGHT] = weights
    tu.assign_non_tensor(part, **(micro_batch | {"micro_batch_size_per_gpu": size, "global_batch_size": None}))
    return part


def negative_objective(model_output: dict[str, Tensor], data: TensorDict, dp_group: Any = None) -> tuple[Tensor, dict]:
    """-J_s of a micro-batch, for verl's engine to go down."""
    log_probs_B_T = no_padding_2_padding(model_output["log_probs"], data)
    fields = data.select("response_mask", "old_log_probs", "advantages").to_padded_tensor()
    mask_B_T = fields["response_mask"].to(log_probs_B_T.dtype)
    ratio_B_T = (log_probs_B_T - fields["old_log_probs"]).exp()
    mean_B = (ratio_B_T * fields["advantages"] * mask_B_T).sum(1) / mask_B_T.sum(1).clamp(min=1)
    return -(mean_B * data[_WEIGHT].to(mean_B)).sum(), {}
