"""verl's actor worker with our update: credit reshapes the advantages, projection corrects the step.

A thin shell: the mathematics is in ``workers.credit`` and ``workers.projection``. Runs inside Ray actors,
one a data-parallel rank.
"""

from typing import Any

from omegaconf import DictConfig
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker, TrainingWorkerConfig

from workers.platform_cpu import prepare_worker_process


class CpuReadyTrainingWorker(TrainingWorker):
    """verl's training worker (critic, reference), able to start on the CPU platform too."""

    def __init__(self, config: TrainingWorkerConfig):
        prepare_worker_process()
        super().__init__(config)


class SkillCreditTrainingWorker(CpuReadyTrainingWorker):
    """The actor's training worker."""

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_mini_batch(self, data: TensorDict) -> TensorDict:
        return super().train_mini_batch(data)


class SkillCreditActorRolloutRefWorker(ActorRolloutRefWorker):
    """The Ray actor that holds policy, rollout adapter and reference; builds our training worker as its actor."""

    actor_worker_cls = SkillCreditTrainingWorker
    ref_worker_cls = CpuReadyTrainingWorker

    def __init__(self, config: DictConfig, role: str, **kwargs: Any):
        prepare_worker_process()
        super().__init__(config, role, **kwargs)
