"""What verl's synchronous trainer needs on a CPU beside the platform: an engine, a worker, and the way to both."""

from typing import Any

import ray
from omegaconf import DictConfig
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.distributed import initialize_global_process_group_ray
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker, TrainingWorkerConfig

from workers.cpu.attention import register_packed_attention

EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device="cpu", vendor="cpu")(FSDPEngineWithLMHead)


class CpuTrainingWorker(TrainingWorker):
    """verl's training worker in a process group of a CPU: the backend of verl's own call names that device twice."""

    def __init__(self, config: TrainingWorkerConfig):
        initialize_global_process_group_ray(backend="gloo")
        register_packed_attention()
        super().__init__(config)


class CpuActorRolloutRefWorker(ActorRolloutRefWorker):
    """verl's Ray actor with that worker."""

    actor_worker_cls = ref_worker_cls = CpuTrainingWorker


@register_trainer("cpu_sync")
class CpuTrainer(PPOTrainerSync):
    """verl's synchronous trainer, whose Ray actors are the one above."""

    def _build_replay_buffer(self) -> ReplayBuffer:
        self.trainer_mode = "sync"  # verl compares this name
        return super()._build_replay_buffer()

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in {Role.ActorRollout, Role.ActorRolloutRef} & self.role_worker_mapping.keys():
            self.role_worker_mapping[role] = ray.remote(CpuActorRolloutRefWorker)


@ray.remote(num_cpus=1)
class CpuTaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):  # type: ignore[misc]
    """verl's task runner in a process where the trainer is registered."""

    def run(self, config: DictConfig) -> None:
        import cpu_trainer  # noqa: F401  (Ray sends this class itself, not its module's name)

        super().run(config)


async def share_of_digits(data_source: str, solution_str: str, ground_truth: str, **_: Any) -> float:
    """The reward: how many characters of an answer are digits, as a share."""
    return sum(map(str.isdigit, solution_str)) / max(len(solution_str), 1)
