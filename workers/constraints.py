"""Constraint gradients of skill-safe updates: ascent gradients of protected skills, where an update starts.

Two sources. Rollouts: the step's own samples of the skill, with their group advantages; the objective is the policy
gradient's alone, without KL or entropy terms:

    J_s = sum_i w_i 1/T_i sum_t ratio_it A_it / sum_i w_i        over the samples i of skill s, on all ranks

with w_i = 1, or its number of tokens T_i where the policy's loss is a mean over tokens (verl's ``token-mean``); the
weights of verl's rollout correction multiply A_it, as in the policy's loss. So
<g_s, x> is the first-order change of skill s in units of its advantages when the parameters move by x. Solutions:
answers that the verifier accepted earlier; J_s is then the mean of their log-likelihoods (sums over tokens: nats per
answer, so that 0.03 is 3% of an answer's probability, however long it is), and needs no new samples.

A batch may hold memory samples, which serve constraint gradients only; `without_memory` removes them before training.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from tensordict import NonTensorStack, TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import no_padding_2_padding

from workers.displacement import local_gradients, local_shard, numbered, shard_group
from workers.solution_store import StoredSolution

MEMORY = "memory_only"  # (B,) bool; the trainer puts it into the batch where a protocol has memory prompts


def without_memory(data: TensorDict, ranks: int, micro_batch_size: int | None) -> TensorDict:
    """This rank's trained samples, with verl's batch sizes scaled to them; the same object if none is memory only.

    The loss is then a mean over these samples alone, in the same number of optimiser steps.

    Args:
        data: the batch that ``train_mini_batch`` gets. ranks: data-parallel ranks. micro_batch_size: as configured,
            per rank.

    Raises:
        ValueError: the remaining samples do not divide into the optimiser's mini-batches.
    """
    rows = torch.nonzero(~data[MEMORY]).flatten().tolist() if MEMORY in set(data.keys()) else list(range(len(data)))
    if len(rows) == len(data):
        return data
    steps = len(data) * ranks // tu.get(data, "mini_batch_size")
    per_step, rest = divmod(len(rows), steps)
    if rest or not per_step:
        raise ValueError(
            f"{len(rows)} of this rank's {len(data)} samples are trained on: not divisible into {steps} mini-batches"
        )
    part = tu.index_select_tensor_dict(data, rows)
    tu.assign_non_tensor(part, mini_batch_size=per_step * ranks, global_batch_size=per_step * ranks)
    if micro_batch_size:
        tu.assign_non_tensor(part, micro_batch_size_per_gpu=math.gcd(per_step, micro_batch_size))
    return part


SKILL = "skill_id"  # (B,) long, which skill a sample belongs to; the trainer puts these fields into the batch
HALF = "constraint_half"  # (B,) long, 0 or 1: samples of a prompt are in the same half
IMAGES = "multi_modal_inputs"  # verl's field: a sample's tensors by name, empty for text
_WEIGHT = "constraint_weight"
_IMPORTANCE = "rollout_is_weights"  # verl's field: weights of its rollout correction, where it makes any
_LEVEL, _SET = "level_weight", "level_set"

Loss = Callable[..., tuple[Tensor, dict[str, Any]]]
Likelihood = Callable[[dict[str, Tensor], TensorDict], Tensor]


@dataclass(frozen=True)
class GradientSource:
    """Input of one gradient: this rank's rows of ``data`` that count, in two halves by prompt, and the loss.

    total: sum of the weights of this rank's samples in the mean; those in neither half have a gradient of zero.
    weights: (B,) for each row of ``data``; None: 1. level: (B,) weight of each row's log-likelihood in the level that
    the pass also measures; None: it measures none. likelihood: of solutions, in the unit of objective and level.
    """

    data: TensorDict
    halves: tuple[list[int], list[int]]
    total: int
    loss: Loss
    weights: Tensor | None = None
    level: Tensor | None = None
    likelihood: Likelihood | None = None


def rollout_source(data: TensorDict, skill: int, token_mean: bool = False) -> GradientSource:
    """This rank's samples of a skill, from the `passed_rows` of an update with SKILL and HALF.

    token_mean: weight each sample by its number of tokens.

    Samples whose advantages are all zero, those of groups with equal scores, are not passed through the model.
    """
    of_skill = data[SKILL] == skill
    live = of_skill & (data.select("advantages").to_padded_tensor()["advantages"] != 0).any(-1)
    halves = [torch.nonzero(live & (data[HALF] == half)).flatten().tolist() for half in (0, 1)]
    if not token_mean:
        return GradientSource(data, (halves[0], halves[1]), int(of_skill.sum()), negative_objective)
    lengths = token_counts(data)
    return GradientSource(data, (halves[0], halves[1]), int(lengths[of_skill].sum()), negative_objective, lengths)


def token_counts(data: TensorDict) -> Tensor:
    """(B,) number of trained tokens of each sample."""
    mask: Tensor = data.select("response_mask").to_padded_tensor()["response_mask"]
    return mask.sum(-1)


def passed_rows(data: TensorDict) -> TensorDict:
    """The fields of an update's batch that a pass through the model needs: tensors, images if any, and settings.

    The texts of samples are dropped: splitting them into parts and micro-batches is expensive and useless.
    """
    images = [IMAGES] if any(tu.get(data, IMAGES, [])) else []
    fields = (key for key, value in data.items() if not isinstance(value, NonTensorStack))
    return data.select(*fields, *images)


def solution_source(
    solutions: Sequence[StoredSolution], temperature: float, rank: int, ranks: int, anchored: int = 0,
    per_token: bool = False, held_out: bool = False,
) -> GradientSource | None:  # fmt: skip
    """This rank's share of stored solutions; None if none are stored.

    anchored: the first so many are an anchor set, whose level the pass measures, too. per_token: the unit is a token.
    held_out: the gradient is that of the others alone; of all where there are no others.
    """
    if not solutions:
        return None
    every = list(range(len(solutions)))
    halves = (every[0::2][rank::ranks], every[1::2][rank::ranks])
    others = (torch.arange(len(solutions)) >= anchored).long() if held_out and anchored < len(solutions) else None
    count = len(halves[0]) + len(halves[1]) if others is None else int(others[[*halves[0], *halves[1]]].sum())
    level = (torch.arange(len(solutions)) < anchored) / anchored if anchored else None
    batch, unit = solution_batch(solutions, temperature), token_log_likelihoods if per_token else log_likelihoods
    return GradientSource(batch, halves, count, partial(_negative, likelihood=unit), others, level, unit)


def solution_batch(solutions: Sequence[StoredSolution], temperature: float) -> TensorDict:
    """Solutions in the form of samples for verl's engine: jagged rows without padding."""
    prompts, responses, masks = ([torch.tensor(row) for row in part] for part in zip(*solutions, strict=True))
    whole = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
    rows = {
        "prompts": prompts,
        "responses": responses,
        "response_mask": masks,
        "loss_mask": masks,
        "input_ids": whole,
        "position_ids": [torch.arange(len(row)) for row in whole],
    }
    fields = {name: torch.nested.as_nested_tensor(part, layout=torch.jagged) for name, part in rows.items()}
    batch = TensorDict(fields, batch_size=len(whole))
    tu.assign_non_tensor(batch, temperature=temperature)
    return batch


class PassLevels:
    """`_negative` that also sums weighted log-likelihoods: levels at no extra pass."""

    def __init__(self, levels: int, likelihood: Likelihood):
        self.likelihood = likelihood
        self.sums = torch.zeros(levels, dtype=torch.float64)

    def __call__(
        self, model_output: dict[str, Tensor], data: TensorDict, dp_group: Any = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """-J_s of a micro-batch of solutions, whose rows count in levels with their `_LEVEL` and `_SET`."""
        value_B = self.likelihood(model_output, data)
        weighted = value_B.detach().double().cpu() * data[_LEVEL].double().cpu()
        self.sums.index_add_(0, data[_SET].cpu(), weighted)
        return -(value_B * data[_WEIGHT].to(value_B)).sum(), {}

    def over_ranks(self, group: Any) -> Tensor:
        """(levels,) the sums over all ranks, in float64."""
        torch.distributed.all_reduce(self.sums, group=group)
        return self.sums


def likelihood_levels(
    engine: Any, sets: Sequence[Sequence[StoredSolution]], temperature: float, micro_batch: dict[str, Any]
) -> Tensor:
    """(sets,) mean log-likelihood of each set of solutions, nats per answer, by one forward pass; 0 for an empty set.

    Collective; the ranks share the solutions.
    """
    rank, ranks = engine.get_data_parallel_rank(), engine.get_data_parallel_size()
    every = [solution for of in sets for solution in of]
    batch = solution_batch(every, temperature)
    batch[_SET] = torch.tensor([number for number, of in enumerate(sets) for _ in of])
    batch[_LEVEL] = torch.tensor([1 / len(of) for of in sets for _ in of], dtype=torch.float64)
    rows, most = list(range(len(every)))[rank::ranks], -(-len(every) // ranks)
    part = _weighted(batch, rows, most, [0.0] * len(rows), micro_batch)
    levels = PassLevels(len(sets), log_likelihoods)
    engine.forward_backward_batch(part, loss_function=levels, forward_only=True)
    return levels.over_ranks(engine.get_data_parallel_group())


def constraint_gradients(
    engine: Any,
    sources: Sequence[GradientSource | None],
    gradients: Sequence[Tensor],
    micro_batch: dict[str, Any],
    levels: list[float] | None = None,
) -> list[float]:
    """Fill in the ascent gradients of these sources; return the cosine between the halves of each, NaN without two.

    levels: gets the level of each source, NaN of one that measures none.

    Collective: every rank calls it with sources of the same kinds, and joins each backward pass even if it holds no
    sample. The engine must be in training mode; its gradients are zero afterwards. A source of None, or without
    samples on any rank, has a gradient of zero.

    Args:
        engine: verl's FSDP engine. gradients: for each trainable parameter (S, *shape of the local shard), zeros on
            entry (`no_gradients`). micro_batch: verl's keys that set how a batch is split.
    """
    parameters = [parameter for parameter in engine.module.parameters() if parameter.requires_grad]
    agreements = []
    for row, source in enumerate(sources):
        engine.optimizer_zero_grad()
        measured, level = _measuring(source)
        first = _accumulate(engine, parameters, measured, micro_batch) if measured else None
        if levels is not None:
            levels.append(float(level.over_ranks(engine.get_data_parallel_group())) if level else math.nan)
        for block, gradient in zip(gradients, local_gradients(parameters), strict=True):
            block[row] = -gradient
        whole = [block[row] for block in gradients]
        agreements.append(halves_cosine(first, whole, shard_group(engine)) if first else math.nan)
    engine.optimizer_zero_grad()
    return agreements


def _measuring(source: GradientSource | None) -> tuple[GradientSource | None, PassLevels | None]:
    """The source with a loss that measures its level, if it has one."""
    if source is None or source.level is None or source.likelihood is None:
        return source, None
    level = PassLevels(1, source.likelihood)
    source.data[_LEVEL] = source.level
    source.data[_SET] = torch.zeros(len(source.level), dtype=torch.long)
    return replace(source, loss=level), level


def no_gradients(shards: Sequence[Tensor], count: int) -> list[Tensor]:
    """Zeros for the gradients of `count` constraints: (S, *shape) of each shard."""
    return [shard.new_zeros(count, *shard.shape, dtype=torch.float32) for shard in shards]


def diagonal_fisher(
    engine: Any, solutions: Sequence[StoredSolution], temperature: float, micro_batch: Any
) -> list[Tensor]:
    """Squared gradient of a solution's mean log-likelihood per token, mean over solutions, for each local shard.

    Every rank passes every solution, so FSDP's mean over ranks is that solution's own gradient.
    """
    parameters = [parameter for parameter in engine.module.parameters() if parameter.requires_grad]
    fisher = [torch.zeros_like(local_shard(parameter.detach()), dtype=torch.float32) for parameter in parameters]
    batch = solution_batch(solutions, temperature) if solutions else None
    loss = partial(_negative, likelihood=token_log_likelihoods)
    for number in range(len(solutions)):
        engine.optimizer_zero_grad()
        part = _weighted(batch, [number], 1, [1.0], micro_batch)
        engine.forward_backward_batch(part, loss_function=loss, forward_only=False)
        for total, gradient in zip(fisher, local_gradients(parameters), strict=True):
            total += gradient.square() / len(solutions)
    engine.optimizer_zero_grad()
    return fisher


def _accumulate(
    engine: Any, parameters: list[Any], source: GradientSource, micro_batch: dict[str, Any]
) -> list[Tensor] | None:
    """Add both halves' gradients to the parameters'; return the first's ascent gradient, None without a second half."""
    group, ranks = engine.get_data_parallel_group(), engine.get_data_parallel_size()
    total = torch.tensor(source.total)
    most = torch.tensor([len(half) for half in source.halves])
    torch.distributed.all_reduce(total, op=torch.distributed.ReduceOp.SUM, group=group)
    torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX, group=group)
    # FSDP takes the mean of the ranks' gradients.
    weight = ranks / max(int(total), 1)
    first = None
    for number, (half, size) in enumerate(zip(source.halves, most.tolist(), strict=True)):
        if size == 0:
            continue
        weights = [weight] * len(half) if source.weights is None else (source.weights[half] * weight).tolist()
        part = _weighted(source.data, half, size, weights, micro_batch)
        engine.forward_backward_batch(part, loss_function=source.loss, forward_only=False)
        if number == 0 and most[1] > 0:
            first = [-gradient for gradient in local_gradients(parameters)]
    return first


def _weighted(
    data: Any, rows: list[int], most: int, weights: Sequence[float], micro_batch: dict[str, Any]
) -> TensorDict:
    """These rows with these weights, padded with rows of weight 0 to the same number on every rank."""
    part = filled_rows(data, rows, most, **micro_batch, global_batch_size=None, calculate_entropy=False)
    part[_WEIGHT] = torch.tensor([*weights] + [0.0] * (len(part) - len(rows)))
    if _LEVEL in set(part.keys()):
        part[_LEVEL][len(rows) :] = 0.0  # rows that only fill up
    return part


def filled_rows(
    data: TensorDict, rows: list[int], most: int, micro_batch_size_per_gpu: int | None, **settings: Any
) -> TensorDict:
    """These rows padded with copies of the shortest one of data, for one pass of verl's engine with these settings.

    They become `most` rows on every rank, or a few more, to give equal micro-batches of at most the given size.
    """
    micro_batches = -(-most // (micro_batch_size_per_gpu or most))
    size = -(-most // micro_batches)
    shortest = int(data["input_ids"].offsets().diff().argmin())
    part = tu.index_select_tensor_dict(data, rows + [shortest] * (micro_batches * size - len(rows)))
    tu.assign_non_tensor(part, **settings, micro_batch_size_per_gpu=size)
    return part


def halves_cosine(first: Sequence[Tensor], whole: Sequence[Tensor], group: Any) -> float:
    """Cosine between the first half's part of a gradient and the rest of it, over all ranks' shards."""
    sums = torch.zeros(3, dtype=torch.float64)
    for half, total in zip(first, whole, strict=True):
        one, other = half.double().flatten(), (total - half).double().flatten()
        sums += torch.stack([one.dot(other), one.dot(one), other.dot(other)]).cpu()
    torch.distributed.all_reduce(sums, group=group)
    product, one_square, other_square = sums.tolist()
    return product / math.sqrt(one_square * other_square) if one_square and other_square else math.nan


def negative_objective(
    model_output: dict[str, Tensor], data: TensorDict, dp_group: Any = None
) -> tuple[Tensor, dict[str, Any]]:
    """-J_s of a micro-batch of rollouts, for verl's engine to descend."""
    log_probs_B_T = no_padding_2_padding(model_output["log_probs"], data)
    names = {"response_mask", "old_log_probs", "advantages", _IMPORTANCE} & set(data.keys())
    fields = data.select(*names).to_padded_tensor()
    ratio_B_T = (log_probs_B_T - fields["old_log_probs"]).exp() * fields.get(_IMPORTANCE, 1.0)
    mean_B = _means(ratio_B_T * fields["advantages"], fields["response_mask"])
    return -(mean_B * data[_WEIGHT].to(mean_B)).sum(), {}


def _negative(
    model_output: dict[str, Tensor], data: TensorDict, dp_group: Any = None, *, likelihood: Likelihood
) -> tuple[Tensor, dict[str, Any]]:
    """-J_s of a micro-batch of solutions."""
    value_B = likelihood(model_output, data)
    return -(value_B * data[_WEIGHT].to(value_B)).sum(), {}


def log_likelihoods(model_output: dict[str, Tensor], data: TensorDict) -> Tensor:
    """(B,) log-likelihood of each sample's trained tokens, their sum."""
    return token_log_likelihoods(model_output, data) * token_counts(data)


def token_log_likelihoods(model_output: dict[str, Tensor], data: TensorDict) -> Tensor:
    """(B,) mean log-likelihood per trained token of each sample."""
    log_probs_B_T = no_padding_2_padding(model_output["log_probs"], data)
    return _means(log_probs_B_T, data.select("response_mask").to_padded_tensor()["response_mask"])


def _means(values_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
    mask_B_T = mask_B_T.to(values_B_T.dtype)
    return (values_B_T * mask_B_T).sum(1) / mask_B_T.sum(1).clamp(min=1)


class GradientAverages:
    """Exponential averages of constraint gradients over updates, by the constraint's name.

    A constraint without signal in an update keeps its average.
    """

    def __init__(self) -> None:
        self.kept: dict[str, list[Tensor]] = {}

    def state(self) -> dict[str, Tensor]:
        """Tensors to checkpoint, by name."""
        return {f"average.{name}.{index}": part for name, kept in self.kept.items() for index, part in enumerate(kept)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned; other names are ignored."""
        prefixes = dict.fromkeys(key.rpartition(".")[0] for key in tensors if key.startswith("average."))
        self.kept = {prefix.removeprefix("average."): numbered(tensors, f"{prefix}.") for prefix in prefixes}

    def smooth(self, names: Sequence[str], gradients: Sequence[Tensor], live: Sequence[bool], decay: float) -> None:
        """Replace the gradients (S, *shape) of each parameter by decay * previous average + (1 - decay) * gradient."""
        for row, (name, alive) in enumerate(zip(names, live, strict=True)):
            new = [block[row] for block in gradients]
            old = self.kept.get(name)
            if old is not None:
                share = 1 - decay if alive else 0.0
                new = [part.to(value.device).lerp(value, share) for part, value in zip(old, new, strict=True)]
            elif not alive:
                continue
            self.kept[name] = [part.clone() for part in new]
            for block, part in zip(gradients, new, strict=True):
                block[row] = part
