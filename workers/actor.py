"""verl's actor worker with our update: projection corrects the step (credit shapes the advantages in the trainer).

A thin shell: the mathematics is in separate modules. Runs inside Ray actors, one per data-parallel rank.
"""

import contextlib
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file, save_file
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.tensordict_utils import maybe_fix_3d_position_ids
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker, TrainingWorkerConfig

from workers.agop import AGOP, part_sources, spectrum
from workers.constraints import (
    GradientAverages,
    constraint_gradients,
    diagonal_fisher,
    no_gradients,
    passed_rows,
    rollout_source,
    solution_source,
    without_memory,
)
from workers.digests.adapter import HeldAdapter, update_and_compare
from workers.displacement import (
    displacement_norm,
    local_shard,
    module_types,
    shard_group,
    snapshot,
    trainable_shards,
)
from workers.engines import PolicyEngine, WantedParts, prepare_worker_process
from workers.penalties import Penalty, Rehearsal
from workers.projection import NotFiniteError, constraint_gram
from workers.ranks.roll_call import as_pass
from workers.safe_update import SafeUpdate
from workers.safety.angles import Angles
from workers.safety.controls import random_signs
from workers.safety.metric import adam_inverse_metric
from workers.safety.verification import damp_momentum, measured_levels
from workers.update_request import PENALTY, PROTECTION, Protection, WantedPenalty


class CpuReadyTrainingWorker(TrainingWorker):
    """verl's training worker (critic, reference) that also starts on the CPU platform; a rank that hangs is named."""

    train_mini_batch, infer_batch = map(as_pass, (TrainingWorker.train_mini_batch, TrainingWorker.infer_batch))
    save_checkpoint, load_checkpoint = map(as_pass, (TrainingWorker.save_checkpoint, TrainingWorker.load_checkpoint))

    def __init__(self, config: TrainingWorkerConfig):
        prepare_worker_process()
        super().__init__(config)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[attr-defined]  # verl adds members at run time
    def reset(self) -> Any:
        """verl's ``reset``, with new weights (adapter, critic head) drawn from the engine's seed on every rank."""
        torch.manual_seed(self.engine_config.seed)
        return super().reset()


class SkillCreditTrainingWorker(CpuReadyTrainingWorker):
    """The actor's training worker: keeps an update inside the skill-safe set when the trainer asks for it.

    Without a protection, a penalty or memory samples in the batch, the update is verl's own.
    """

    _begin: Callable[[], None] | None = None
    _before: list[torch.Tensor] | None = None
    _update: SafeUpdate | None = None
    _measure: Callable[[], list[float]] | None = None
    _wanted_penalty: WantedPenalty | None = None
    _rehearsal: Rehearsal | None = None
    _penalty_value: float = 0.0
    _not_finite: int = 0

    def __init__(self, config: TrainingWorkerConfig):
        super().__init__(config)
        self._averages = GradientAverages()
        self._accepted: dict[str, float] = {}  # levels of the anchor sets at the current parameters
        self._penalty = Penalty()
        self._measured: dict[str, float] = {}

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_mini_batch(self, data: TensorDict) -> TensorDict:
        maybe_fix_3d_position_ids(data)  # verl's method does this first, too late for the rows removed here
        wanted, penalty, parts = (tu.pop(data, key=key, default=None) for key in (PROTECTION, PENALTY, AGOP))
        self._measured, self._penalty_value = {}, 0.0
        self._wanted_penalty = WantedPenalty.from_dict(penalty) if penalty else None
        protection = Protection.from_dict(wanted) if wanted else None
        # verl removes its settings from the batch it is given
        self._begin = partial(self._begin_steps, data.copy(), protection, parts)
        data = without_memory(data, self.engine.get_data_parallel_size(), self.engine_config.micro_batch_size_per_gpu)
        hook = self._optimizer().register_step_pre_hook(self._before_step)
        try:
            output = super().train_mini_batch(data)
        finally:
            hook.remove()
            update = self._update
            self._accepted = update.accepted if update else {}
            self._update = self._wanted_penalty = self._before = self._begin = self._measure = None
        metrics = self._measured | (update.metrics() if update else {})
        if penalty:
            metrics["penalty/value"] = self._penalty_value
        if output is not None:
            metrics["projection/nonfinite_gradients"], self._not_finite = float(self._not_finite), 0
            for name, value in metrics.items():
                tu.get(output, "metrics")[name] = [value]
        return output

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_batch(self, data: TensorDict) -> TensorDict:
        """One optimiser step of an update; verl's ``train_mini_batch`` has moved offloaded weights to the device."""
        if self._begin is not None:
            begin, self._begin = self._begin, None
            begin()
        self._rehearsal = self._rehearse(tu.get(data, "temperature"))
        output = super().train_batch(data)
        if output is not None:
            # verl skips an optimiser step whose gradient is not finite, and only prints a warning
            self._not_finite += not math.isfinite(float(tu.get(output, "metrics")["grad_norm"]))
        if self._update is not None:
            if self._update.inverse_metric is None:
                self._update.inverse_metric = self._inverse_metric(self._update.protection)
            self._update.after_step(self._shards())
            self._verify(self._update)
        last_step = tu.get(data, "update_lr_scheduler", default=False)
        if self._before is not None and last_step:
            moved = displacement_norm(self._before, self._shards(), self._shard_ranks())
            self._measured["projection/displacement_norm"] = moved
        return output

    def _begin_steps(self, data: TensorDict, protection: Protection | None, parts: int | None) -> None:
        """Measure and copy the parameters as an update needs them before its first step.

        data: all samples of the update. protection: from PROTECTION. parts: from AGOP.
        """
        self._before = snapshot(self._shards()) if protection or self._trains_adapter() else None
        if parts:
            self._measured |= self._gradient_spectrum(data, parts)
        if self._wanted_penalty:
            self._begin_stage(data, self._wanted_penalty)
        if protection:  # last: it may instrument the next pass, which must be the update's own
            self._update = self._begin_update(data, protection, self._before)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[attr-defined]  # verl adds members at run time
    def save_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, global_step: int = 0, max_ckpt_to_keep: int | None = None
    ) -> Any:
        saved = super().save_checkpoint(local_path, hdfs_path, global_step, max_ckpt_to_keep)
        tensors = self._penalty.state() | self._averages.state()
        if tensors:
            save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, self._own_file(local_path))
        return saved

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[attr-defined]  # verl adds members at run time
    def load_checkpoint(self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False) -> Any:
        file = self._own_file(local_path)
        tensors = load_file(file) if file.exists() else {}
        self._penalty.restore(tensors)
        self._accepted = {}
        self._averages.restore(tensors)
        return super().load_checkpoint(local_path, hdfs_path, del_local_after_load)

    def _begin_update(self, data: TensorDict, protection: Protection, before: list[torch.Tensor] | None) -> SafeUpdate:
        """Constraint gradients at the current parameters: computed now, or taken from the update's own pass."""
        ranks = self.engine.get_data_parallel_size()
        assert before is not None
        engine: Any = self.engine
        gradients = no_gradients(before, len(protection.constraints))
        update = SafeUpdate(
            protection,
            gradients,
            before,
            self._shard_ranks(),
            module_types(engine.module),
            None if protection.control is None else random_signs(self._parameters(), protection.control),
        )
        if protection.tries is not None:
            self._begin_verification(update, tu.get(data, "temperature"), protection.tries)
        note = partial(self._note_constraints, update)
        one_step = tu.get(data, "mini_batch_size") == len(data) * ranks
        if protection.shared_pass and one_step and isinstance(self.engine, PolicyEngine):
            skills = [each.skill for each in protection.constraints]
            self.engine.wanted_parts = WantedParts(skills, update.constraints, note, protection.token_mean)
            return update
        rows, temperature = passed_rows(data), tu.get(data, "temperature")
        rank, held_out = self.engine.get_data_parallel_rank(), protection.held_out
        sources = [
            rollout_source(rows, each.skill, protection.token_mean)
            if each.solutions is None
            else solution_source(each.solutions, temperature, rank, ranks, each.anchored, held_out=held_out)
            for each in protection.constraints
        ]
        levels: list[float] = []
        agreements = constraint_gradients(self.engine, sources, update.constraints, self._micro_batch(), levels)
        update.record_levels(levels)
        update.join_followed()
        note(agreements)
        return update

    def _begin_verification(self, update: SafeUpdate, temperature: float, tries: int) -> None:
        """Levels of the anchor sets at the update's start: those that the last update ended with, if it verified."""
        sets = {each.name: each.anchor_set for each in update.protection.constraints}
        self._measure = partial(measured_levels, self.engine, list(sets.values()), temperature, self._micro_batch())
        # a set that was empty in the last update has a level of NaN there
        known = all(math.isfinite(self._accepted.get(name, math.nan)) for name, kept in sets.items() if kept)
        levels = [self._accepted.get(name, math.nan) for name in sets] if known else self._measure()
        update.record_levels(levels)
        update.verify(levels, tries)

    def _verify(self, update: SafeUpdate) -> None:
        """After an optimiser step: correct it, or step back, where a skill's anchor set fell below its line."""
        if update.verification is None or self._measure is None:
            return
        shards = self._shards()
        share = update.verification.after_step(update.start, shards, self._measure, partial(update.correct, shards))
        if share < 1:
            damp_momentum(self._optimizer(), share)

    def _inverse_metric(self, protection: Protection) -> list[torch.Tensor] | None:
        if protection.metric != "adam":
            return None
        return adam_inverse_metric(self._optimizer(), self._parameters(), self._shard_ranks())

    def _note_constraints(self, update: SafeUpdate, agreements: list[float]) -> None:
        """Once an update's constraint gradients are known: keep their inner products and their metrics."""
        names = update.protection.names
        update.agreements = agreements
        update.noted |= {
            f"projection/split_half_cosine/{name}": value
            for name, value in zip(names, agreements, strict=True)
            if not math.isnan(value)
        }
        with contextlib.suppress(NotFiniteError):  # the update itself skips its steps and counts them
            angles = self._angles(update.protection, update.constraints)
            update.gram, update.of_modules = angles.gram, angles.modules
            update.noted |= angles.metrics()

    def _angles(self, protection: Protection, gradients: list[torch.Tensor]) -> Angles:
        engine: Any = self.engine
        modules = module_types(engine.module)
        angles = Angles.of(protection.names, gradients, modules, self._shard_ranks())
        if protection.average:
            live = (angles.gram.diag() > 0).tolist()
            self._averages.smooth(protection.names, gradients, live, protection.average)
            angles = Angles.of(protection.names, gradients, modules, self._shard_ranks())
        return angles

    def _gradient_spectrum(self, data: TensorDict, parts: int) -> dict[str, float]:
        """Statistics of the policy gradient at the current parameters; empty where it is not finite."""
        gradients = no_gradients(self._shards(), parts)
        constraint_gradients(self.engine, part_sources(data, parts), gradients, self._micro_batch())
        try:
            return spectrum(constraint_gram(gradients, self._shard_ranks()))
        except NotFiniteError:
            return {}

    def _begin_stage(self, data: TensorDict, wanted: WantedPenalty) -> None:
        """At the first update of a new stage: anchor the penalty where the last stage ended."""
        if wanted.stage == self._penalty.stage or wanted.kind == "rehearsal":
            return
        fisher = None
        if wanted.kind == "ewc":
            fisher = diagonal_fisher(self.engine, wanted.solutions, tu.get(data, "temperature"), self._micro_batch())
        self._penalty.begin_stage(wanted.stage, self._shards(), fisher)

    def _rehearse(self, temperature: float) -> Rehearsal | None:
        """The gradient of the rehearsed solutions at the current parameters; None without any."""
        wanted = self._wanted_penalty
        if wanted is None or wanted.kind != "rehearsal" or not wanted.solutions:
            return None
        rank, ranks = self.engine.get_data_parallel_rank(), self.engine.get_data_parallel_size()
        source = solution_source(wanted.solutions, temperature, rank, ranks, len(wanted.solutions), per_token=True)
        gradients, levels = no_gradients(self._shards(), 1), list[float]()
        constraint_gradients(self.engine, [source], gradients, self._micro_batch(), levels)
        return Rehearsal([block[0] for block in gradients], levels[0])

    def _before_step(self, optimizer: Any, arguments: Any, options: Any) -> None:
        """Between clipping and the optimiser's step: the penalty's gradient, then projection in gradient space.

        To skip the step, it removes the gradients: an optimiser leaves parameters without one as they are.
        """
        if self._update is None and self._wanted_penalty is None:
            return
        parameters = self._parameters()
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [local_shard(parameter.grad) for parameter in parameters]
        may_step = self._add_penalty(gradients) and (self._update is None or self._update.before_step(gradients))
        if not may_step:
            for parameter in parameters:
                parameter.grad = None

    def _add_penalty(self, gradients: list[torch.Tensor]) -> bool:
        """Add the penalty's gradient to the clipped ones; return whether the optimiser may step.

        verl checks for finite gradients before the penalty is added, so the sum is checked here.
        """
        if self._wanted_penalty is None:
            return True
        strength = self._wanted_penalty.strength
        if self._wanted_penalty.kind == "rehearsal":
            self._penalty_value = self._rehearsal.add_gradient(gradients, strength) if self._rehearsal else 0.0
            finite = self._rehearsal is None or math.isfinite(self._sum_over_shards(self._rehearsal.square()))
        else:
            self._penalty_value = self._sum_over_shards(self._penalty.add_gradient(gradients, self._shards(), strength))
            finite = math.isfinite(self._penalty_value)  # then every part of the gradient is finite, too
        self._not_finite += not finite
        return finite

    def _micro_batch(self) -> dict[str, Any]:
        """verl's keys that set how a batch is split into micro-batches."""
        config = self.engine_config
        return {
            "use_remove_padding": self.model_config.get("use_remove_padding", False),
            "use_fused_kernels": config.use_fused_kernels,
            "use_dynamic_bsz": config.use_dynamic_bsz,
            "max_token_len_per_gpu": config.max_token_len_per_gpu,
            "micro_batch_size_per_gpu": config.micro_batch_size_per_gpu,
        }

    def _sum_over_shards(self, value: torch.Tensor) -> float:
        total = value.cpu()
        torch.distributed.all_reduce(total, group=self._shard_ranks())
        return float(total)

    def _own_file(self, folder: str) -> Path:
        return Path(folder) / f"skillcredit_rank_{torch.distributed.get_rank()}.safetensors"

    def _shard_ranks(self) -> torch.distributed.ProcessGroup:
        return shard_group(self.engine)

    def _optimizer(self) -> torch.optim.Optimizer:
        engine: Any = self.engine  # verl's base class does not declare the attributes of its FSDP engine
        optimizer: torch.optim.Optimizer = engine.optimizer
        return optimizer

    def _parameters(self) -> list[Any]:
        engine: Any = self.engine
        return [parameter for parameter in engine.module.parameters() if parameter.requires_grad]

    def _shards(self) -> list[torch.Tensor]:
        engine: Any = self.engine
        return trainable_shards(engine.module)

    def _trains_adapter(self) -> bool:
        """Whether only an adapter trains: a copy of it is small, one of all weights would double the memory."""
        rank: int = self.model_config.get("lora_rank", 0)
        return rank > 0


class SkillCreditActorRolloutRefWorker(ActorRolloutRefWorker):
    """The Ray actor with policy, rollout adapter and reference; its actor is our training worker."""

    actor_worker_cls = SkillCreditTrainingWorker
    ref_worker_cls = CpuReadyTrainingWorker

    def __init__(self, config: DictConfig, role: str, **kwargs: Any):
        super().__init__(config, role, **kwargs)
        # before any worker of this process joins; a critic that shares the process is in the same group
        prepare_worker_process(config.nccl_timeout)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[attr-defined]  # verl adds members at run time
    def init_model(self) -> None:
        super().init_model()
        rollout = self.config.get("rollout")
        if self.rollout is not None and extended_by(HeldAdapter, rollout):
            from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID  # imports vLLM

            engine: Any = self.rollout

            async def require(trained: str, step: int | None) -> None:
                await engine._execute_method("require_adapter", args=(VLLM_LORA_INT_ID, trained, step))

            dtype = PrecisionType.to_dtype(rollout.dtype)
            engine.update_weights = partial(update_and_compare, engine.update_weights, require, dtype)


def extended_by(part: type, rollout: DictConfig) -> bool:
    """Whether this part of ours extends the engine of a configuration, which has whole weights."""
    named = OmegaConf.select(rollout, "engine_kwargs.vllm.worker_extension_cls")
    one = rollout.tensor_model_parallel_size == rollout.data_parallel_size == 1  # verl asks the first of several shards
    whole = rollout.name == "vllm" and one
    return bool(named) and whole and issubclass(load_class_from_fqn(named), part)
