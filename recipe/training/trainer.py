"""verl's synchronous V1 trainer with our hooks."""

from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.training.hooks.step import SkillCreditHooks


@register_trainer("skillcredit")
class SkillCreditTrainer(SkillCreditHooks, PPOTrainerSync):
    """Synchronous PPO, GRPO or REINFORCE with masked infrastructure failures, skills and records."""

    MODE = "sync"
