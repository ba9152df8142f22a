"""verl's synchronous V1 trainer with our hooks, and the Ray actor that builds and runs a trainer of ours."""

import ray
from omegaconf import DictConfig
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.training.hooks.step import SkillCreditHooks

# verl exports the Ray actor class; only the plain class behind it can be subclassed.
_TaskRunner = TaskRunnerV1.__ray_metadata__.modified_class  # type: ignore[attr-defined]


@register_trainer("skillcredit")
class SkillCreditTrainer(SkillCreditHooks, PPOTrainerSync):
    """Synchronous PPO, GRPO or REINFORCE with masked infrastructure failures, skills and records."""

    MODE = "sync"


@ray.remote(num_cpus=1)
class SkillCreditTaskRunner(_TaskRunner):  # type: ignore[misc, valid-type]
    """verl's task runner in a process where our trainers are registered."""

    def run(self, config: DictConfig) -> None:
        import recipe.training.asynchronous.trainer  # noqa: F401  (registers the asynchronous ones)

        super().run(config)
