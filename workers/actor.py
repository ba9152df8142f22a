"""verl's actor worker with our update: projection corrects the step (credit shapes the advantages in the trainer).

A thin shell: the mathematics is in modules of its own. Runs inside Ray actors, one a data-parallel rank.
"""

from typing import Any

import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.single_controller.base.decorator import make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker, TrainingWorkerConfig

from workers.constraints import skill_gradients
from workers.displacement import displacement_norm, snapshot, trainable_shards
from workers.platform_cpu import prepare_worker_process
from workers.safe_update import PROTECTION, Protection, SafeUpdate


class CpuReadyTrainingWorker(TrainingWorker):
    """verl's training worker (critic, reference), able to start on the CPU platform too."""

    def __init__(self, config: TrainingWorkerConfig):
        prepare_worker_process()
        super().__init__(config)


class SkillCreditTrainingWorker(CpuReadyTrainingWorker):
    """The actor's training worker: keeps an update inside the set that protects skills where the trainer asks for it.

    Without a protection in the batch the update is verl's own.
    """

    _update: SafeUpdate | None = None

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_mini_batch(self, data: TensorDict) -> TensorDict:
        wanted = tu.pop(data, key=PROTECTION, default=None)
        if not (wanted or self._trains_adapter()):
            return super().train_mini_batch(data)
        before = snapshot(self._shards())
        if wanted:
            protection = Protection(**wanted)
            self._update = SafeUpdate(protection, self._constraints(data, protection), before, self._ranks())
        try:
            output = super().train_mini_batch(data)
        finally:
            update, self._update = self._update, None
        norm = displacement_norm(before, self._shards(), self._ranks())
        if output is not None:
            metrics = update.metrics() if update else {}
            for name, value in (metrics | {"projection/displacement_norm": norm}).items():
                tu.get(output, "metrics")[name] = [value]
        return output

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_batch(self, data: TensorDict) -> TensorDict:
        output = super().train_batch(data)
        if self._update is not None:
            self._update.after_step(self._shards())
        return output

    def _constraints(self, data: TensorDict, protection: Protection) -> list[torch.Tensor]:
        config = self.engine_config
        micro_batch = {
            "use_remove_padding": self.model_config.get("use_remove_padding", False),
            "use_fused_kernels": config.use_fused_kernels,
            "use_dynamic_bsz": config.use_dynamic_bsz,
            "max_token_len_per_gpu": config.max_token_len_per_gpu,
            "micro_batch_size_per_gpu": config.micro_batch_size_per_gpu,
        }
        with self.engine.train_mode():
            return skill_gradients(self.engine, data, protection.skills, micro_batch)

    def _ranks(self) -> torch.distributed.ProcessGroup:
        return self.engine.get_data_parallel_group()

    def _shards(self) -> list[torch.Tensor]:
        engine: Any = self.engine  # verl's base class does not declare the module that its FSDP engine has
        return trainable_shards(engine.module)

    def _trains_adapter(self) -> bool:
        """A spare copy of all weights would double the memory of full fine-tuning; that of an adapter is small."""
        return self.model_config.get("lora_rank", 0) > 0


class SkillCreditActorRolloutRefWorker(ActorRolloutRefWorker):
    """The Ray actor that holds policy, rollout adapter and reference; builds our training worker as its actor."""

    actor_worker_cls = SkillCreditTrainingWorker
    ref_worker_cls = CpuReadyTrainingWorker

    def __init__(self, config: DictConfig, role: str, **kwargs: Any):
        prepare_worker_process()
        super().__init__(config, role, **kwargs)
