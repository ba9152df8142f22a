"""Our engines in verl's registry: the policy's, which can split a training pass by skill, and the critic's.

If an update trains on the samples that its constraints use, in one optimiser step (protocol mixed), the constraint
gradients are parts of its own gradient, and a second pass would only compute them again. That holds for PPO's clipped
loss as a mean over samples of means over tokens, or as a mean over tokens: J_s is then the same mean over the samples
of skill s. verl's other losses are sums, or depend on how a batch is split; the trainer does not divide them by skill.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import AutoModelForTokenClassification, PreTrainedModel
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name, get_vendor
from verl.utils.distributed import initialize_global_process_group_ray
from verl.utils.fsdp_utils import merged_lora_context, normalize_peft_param_name
from verl.utils.py_functional import append_to_dict
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead, FSDPEngineWithValueHead

from workers.constraints import HALF, SKILL, Loss, filled_rows, halves_cosine, passed_rows, token_counts
from workers.cpu.adapter import use_lora_products
from workers.cpu.attention import register_packed_attention
from workers.cpu.head import predicting_positions, require_plain_head, use_fast_head
from workers.cpu.verl_platform import is_cpu_platform
from workers.displacement import local_gradients, shard_group
from workers.ranks import roll_call

Pass = Callable[..., Any]  # verl declares a list and returns a dictionary


@dataclass(frozen=True)
class WantedParts:
    """Measurements requested from an engine's next training pass.

    skills: ids of the S skills. gradients: for each trainable parameter (S, *shape of the local shard), the buffers of
    the ascent gradients. note: called with the cosine between the gradients of each skill's halves, NaN without two.
    token_mean: the loss is a mean over tokens, not over samples.
    """

    skills: Sequence[int]
    gradients: Sequence[Tensor]
    note: Callable[[list[float]], None]
    token_mean: bool = False


def pass_in_parts(engine: Any, whole: Pass, wanted: WantedParts, data: TensorDict, loss: Loss) -> dict[str, Any]:
    """Forward and backward over this rank's samples, one half of a skill at a time; returns what verl's engine does.

    The gradients add up to those of the whole batch, in another order of summation. Collective: every rank passes
    every part, if necessary with a sample whose tokens are masked out.

    Args:
        whole: verl's own pass over a batch, in its micro-batches. data: with SKILL and HALF. loss: verl's, which
            divides by the numbers of samples and tokens of the whole batch.
    """
    parts = [[_rows_of(data, skill, half) for half in (0, 1)] for skill in wanted.skills]
    rest = [row for row, skill in enumerate(data[SKILL].tolist()) if skill not in wanted.skills]
    blocks = [*parts, [rest, []]]
    most, totals, tokens = _counts_of_all_ranks(data, blocks, wanted.token_mean, engine.get_data_parallel_group())
    # The loss counts tokens that verl's rollout correction has masked since; `weights` does not.
    whole_batch = tokens if wanted.token_mean else int(totals.sum())
    rows, loss = passed_rows(data), _over_the_whole(loss, tokens)
    outputs: list[dict[str, Any]] = []

    def run(part: list[int], size: int) -> None:
        if size:
            filled = filled_rows(rows, part, size, tu.get(data, "micro_batch_size_per_gpu"))
            outputs.append(whole(_without_tokens(filled, kept=len(part)), loss))

    parameters = [parameter for parameter in engine.module.parameters() if parameter.requires_grad]
    before = [torch.zeros_like(gradient) for gradient in local_gradients(parameters)]
    agreements = []
    for row, (halves, sizes) in enumerate(zip(parts, most.tolist(), strict=False)):
        mine = [block[row] for block in wanted.gradients]
        run(halves[0], sizes[0])
        for gradient, old, now in zip(mine, before, local_gradients(parameters), strict=True):
            gradient.copy_(old - now)  # the first half's
        run(halves[1], sizes[1])
        skill = before  # the same memory, which saves one copy: it becomes the skill's ascent gradient
        for old, now in zip(skill, local_gradients(parameters), strict=True):
            old.sub_(now)
        agreements.append(halves_cosine(mine, skill, shard_group(engine)) if all(sizes) else math.nan)
        scale = whole_batch / max(int(totals[row]), 1)
        for gradient, part, now in zip(mine, skill, local_gradients(parameters), strict=True):
            gradient.copy_(part * scale)
            part.copy_(now)
    run(rest, int(most[-1, 0]))
    wanted.note(agreements)
    return _as_one(outputs)


def _counts_of_all_ranks(
    data: TensorDict, blocks: Sequence[Sequence[list[int]]], token_mean: bool, group: Any
) -> tuple[Tensor, Tensor, int]:
    """Over the ranks of a group: the most samples of each half of a block (blocks, 2), and the sums of the samples, or
    with token_mean of the trained tokens, of each block (blocks,), and of the tokens of the loss.
    """
    most = torch.tensor([[len(half) for half in halves] for halves in blocks])
    weights = token_counts(data) if token_mean else torch.ones(len(data), dtype=torch.long)
    totals = torch.stack([weights[[*first, *second]].sum() for first, second in blocks])
    tokens = data["loss_mask"].sum()
    torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX, group=group)
    for counts in (totals, tokens):
        torch.distributed.all_reduce(counts, op=torch.distributed.ReduceOp.SUM, group=group)
    return most, totals, int(tokens)


def _rows_of(data: TensorDict, skill: int, half: int) -> list[int]:
    return torch.nonzero((data[SKILL] == skill) & (data[HALF] == half)).flatten().tolist()


def _over_the_whole(loss: Loss, tokens: int) -> Loss:
    """The same loss, normalised by the number of tokens of the whole batch on all ranks."""

    def of_part(
        model_output: dict[str, Tensor], data: TensorDict, dp_group: Any = None
    ) -> tuple[Tensor, dict[str, Any]]:
        tu.assign_non_tensor(data, batch_num_tokens=tokens)
        return loss(model_output=model_output, data=data, dp_group=dp_group)

    return of_part


def _without_tokens(part: TensorDict, kept: int) -> TensorDict:
    """The part with all tokens masked out in the rows from `kept` on."""
    if len(part) > kept:
        for name in ("response_mask", "loss_mask"):
            masks = [mask if row < kept else torch.zeros_like(mask) for row, mask in enumerate(part[name].unbind())]
            part[name] = torch.nested.as_nested_tensor(masks, layout=torch.jagged)
    return part


def _as_one(outputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the outputs of several passes of verl's engine into the output of one."""
    joined: dict[str, Any] = {"model_output": {}, "loss": [], "metrics": {}}
    for output in outputs:
        joined["loss"].extend(output["loss"])
        append_to_dict(joined["metrics"], output["metrics"])
    return joined


BACKENDS = ["fsdp", "fsdp2"]


# How long a rank of this process waits for the others; None: torch's default.
_limit: timedelta | None = None


def limit_groups(*meshes: DeviceMesh | None) -> None:
    """Set the process's time limit on the groups of meshes: torch gives new groups its default, not the first one's."""
    if _limit is not None:
        for group in (group for mesh in meshes if mesh is not None for group in mesh.get_all_groups()):
            _set_pg_timeout(_limit, group)


def reshard(module: torch.nn.Module) -> None:
    """Free the gathered weights of every FSDP unit, so that the module's parameters are this rank's shards again.

    With ``reshard_after_forward=false`` only a backward pass does so, and verl reshards the outermost unit alone.
    """
    for unit in module.modules():
        if isinstance(unit, FSDPModule):
            unit.reshard()


def gather_head(module: torch.nn.Module) -> None:
    """Have each pass gather the output layer's weight where FSDP2 shards that layer alone, as with untied embeddings.

    Fused kernels multiply by that weight without calling the layer, so that FSDP2 would leave them its shard.
    """
    heads = [unit for name, unit in module.named_modules() if name.endswith("lm_head") and isinstance(unit, FSDPModule)]

    def gather(*_: Any) -> None:
        for head in heads:
            head.unshard()

    if heads:
        module.register_forward_pre_hook(gather)


def without_attention_name(module: PreTrainedModel) -> PreTrainedModel:
    """The module, whose saved config no longer names its attention: other programs do not know ``packed``.

    transformers keeps that choice out of saved configs; verl states it once more as another attribute.
    """
    vars(module.config).pop("attn_implementation", None)
    return module


class LimitedGroups(FSDPEngine):
    """verl's engine, whose groups (shards, replicas, sequence parallelism) have the process's own time limit."""

    def _init_device_mesh(self) -> None:
        super()._init_device_mesh()
        limit_groups(self.device_mesh, self.ulysses_device_mesh)


class PolicyEngine(LimitedGroups, FSDPEngineWithLMHead):
    """verl's engine of the policy; `wanted_parts` makes it split the next training pass by skill.

    On a CPU its fused kernels are those of workers.cpu.
    """

    wanted_parts: WantedParts | None = None

    @property
    def _fast_head(self) -> bool:
        fused = self.model_config.use_fused_kernels and self.model_config.use_remove_padding
        return is_cpu_platform() and fused and self.ulysses_sequence_parallel_size == 1

    def _build_module(self) -> torch.nn.Module:
        module = without_attention_name(super()._build_module())
        if self.model_config.use_fused_kernels and self.model_config.use_remove_padding:
            require_plain_head(module)
        if self._fast_head:
            use_fast_head(module)
        return module

    def _build_lora_module(self, module: torch.nn.Module) -> torch.nn.Module:
        adapted: torch.nn.Module = super()._build_lora_module(module)
        if is_cpu_platform():
            use_lora_products(adapted)
        return adapted

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        sharded: torch.nn.Module = super()._build_fsdp_module(module)
        if self.model_config.use_fused_kernels:
            gather_head(sharded)
        return sharded

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
        roll_call.move()
        inputs, outputs = super().prepare_model_inputs(micro_batch)
        if self._fast_head:
            inputs["positions"] = predicting_positions(micro_batch)
        return inputs, outputs

    def _merged_lora_per_tensor_param(self) -> Iterator[tuple[str, Tensor]]:
        """Names and whole weights with the adapters added, for the inference engine.

        verl rounds them to bfloat16 in any precision: in float32 the engine would sample from another policy.
        """
        if not (is_cpu_platform() and self.engine_config.dtype == "float32"):
            yield from super()._merged_lora_per_tensor_param()
            return
        with merged_lora_context(self.module, backup_adapters=True):
            for name, weight in normalize_peft_param_name(self.module.state_dict()).items():
                whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
                yield name, whole.detach().clone()  # the trainer's own weights change back before all are sent

    def forward_backward_batch(self, data: TensorDict, loss_function: Loss, forward_only: bool = False) -> Any:
        wanted = self.wanted_parts
        if forward_only:
            output = super().forward_backward_batch(data, loss_function, forward_only)
            reshard(self.module)
            return output
        if wanted is None:
            return super().forward_backward_batch(data, loss_function, forward_only)
        self.wanted_parts = None
        return pass_in_parts(self, super().forward_backward_batch, wanted, data, loss_function)


class ValueEngine(LimitedGroups, FSDPEngineWithValueHead):
    """verl's critic."""


class CpuValueEngine(ValueEngine):
    """The same with the configured attention implementation: verl hard-codes flash-attention here."""

    def _build_module(self) -> torch.nn.Module:
        """The policy's body with one output per token; every rank loads all of it."""
        config = self.model_config.hf_config
        config.num_labels, config.classifier_dropout = 1, 0.0
        folder = str(self.model_config.local_path)
        module: PreTrainedModel = AutoModelForTokenClassification.from_pretrained(
            folder, config=config, torch_dtype=torch.float32
        )
        if self.model_config.enable_gradient_checkpointing:
            module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return without_attention_name(module)


def register_engines() -> None:
    """Register our engines under this platform's vendor, which verl prefers to its own entries. Idempotent.

    Also register the attention over packed sequences, which a GPU can use in place of flash-attn.
    """
    device, vendor = get_device_name(), get_vendor()
    engines = {"language_model": PolicyEngine, "value_model": CpuValueEngine if device == "cpu" else ValueEngine}
    for model_type, engine in engines.items():
        if (device, vendor) not in EngineRegistry._engines[model_type]["fsdp2"]:
            EngineRegistry.register(model_type, BACKENDS, device=device, vendor=vendor)(engine)
    register_packed_attention()


def prepare_worker_process(timeout_seconds: int | None = None) -> None:
    """Register our engines with verl, and join the process group where verl's own call would fail or lack the limit.

    verl joins with torch's default time limit, and not at all if a group exists. On the CPU it names the backend
    ``cpu:gloo,<device>:<backend>``, which torch refuses when the device is the cpu itself.

    Args:
        timeout_seconds: how long a rank waits for the others (``actor_rollout_ref.nccl_timeout``); None: torch's
            default, or the limit that an earlier call set: actor, reference and critic of a process share its group.
    """
    global _limit
    register_engines()
    if timeout_seconds is not None:
        _limit = timedelta(seconds=timeout_seconds)
    if is_cpu_platform() or timeout_seconds is not None:
        initialize_global_process_group_ray(timeout_seconds, backend="gloo" if is_cpu_platform() else None)
    if timeout_seconds is not None:
        roll_call.begin(timeout_seconds)
