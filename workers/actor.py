"""verl's actor worker with our update: credit reshapes the advantages, projection corrects the step.

A thin shell: the mathematics is in modules of its own. Runs inside Ray actors, one a data-parallel rank.
"""

from typing import Any

import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.single_controller.base.decorator import make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker, TrainingWorkerConfig

from workers.displacement import displacement_norm, snapshot, trainable_shards
from workers.platform_cpu import prepare_worker_process


class CpuReadyTrainingWorker(TrainingWorker):
    """verl's training worker (critic, reference), able to start on the CPU platform too."""

    def __init__(self, config: TrainingWorkerConfig):
        prepare_worker_process()
        super().__init__(config)


class SkillCreditTrainingWorker(CpuReadyTrainingWorker):
    """The actor's training worker. Credit and projection come in here; without them the update is verl's own."""

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_mini_batch(self, data: TensorDict) -> TensorDict:
        before = snapshot(self._shards()) if self._trains_adapter() else None
        output = super().train_mini_batch(data)
        if before is not None:
            norm = displacement_norm(before, self._shards())
            if output is not None:
                tu.get(output, "metrics")["projection/displacement_norm"] = [norm]
        return output

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
