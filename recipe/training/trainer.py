"""verl's synchronous V1 trainer with our hooks. Nothing of verl's step is copied here."""

import ray
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from workers.actor import CpuReadyTrainingWorker, SkillCreditActorRolloutRefWorker


@register_trainer("skillcredit")
class SkillCreditTrainer(PPOTrainerSync):
    """Synchronous GRPO/PPO with masked infrastructure failures, per-skill validation and a run directory."""

    def _build_replay_buffer(self) -> ReplayBuffer:
        # verl compares this name in many places; we are its synchronous trainer under a name of our own.
        self.trainer_mode = "sync"
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = 0.1
        return buffer

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef):
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(SkillCreditActorRolloutRefWorker)
        if Role.Critic in self.role_worker_mapping:
            self.role_worker_mapping[Role.Critic] = ray.remote(CpuReadyTrainingWorker)
