"""verl's asynchronous trainers with our hooks: engines on the trainer's GPUs, and engines apart from them."""

import logging
from typing import Any

import ray
from verl.trainer.ppo.v1 import trainer_separate_async
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync

from recipe.training.asynchronous.hooks import AsynchronousHooks
from workers.detached import SkillCreditDetachedWorker
from workers.digests import WeightsDifferError


@register_trainer("skillcredit_colocate_async")
class SkillCreditColocateTrainer(AsynchronousHooks, PPOTrainerColocateAsync):
    """PPO, GRPO or REINFORCE with generation ahead of training on the same GPUs: engines sleep during an update."""

    MODE = "colocate_async"


@register_trainer("skillcredit_separate_async")
class SkillCreditSeparateTrainer(AsynchronousHooks, PPOTrainerSeparateAsync):
    """The same with engines apart, which answer during updates and get all weights after each step.

    A step has ``parameter_sync_step`` updates, each of one optimiser step with its own credit and projection.
    """

    MODE = "separate_async"
    ACTOR_WORKER = SkillCreditDetachedWorker

    @property
    def _servers(self) -> Any:
        return self.standalone_server_manager

    def _setup(self) -> None:
        # Without engines on the trainer's GPUs verl 0.9.1 logs with `flush=True`, which no logger takes.
        logging.getLogger(trainer_separate_async.__name__).setLevel(logging.WARNING)
        super()._setup()  # type: ignore[no-untyped-call]

    def on_init_end(self) -> None:
        super().on_init_end()
        self._require_trained_weights()

    def on_step_end(self) -> None:
        super().on_step_end()
        self._require_trained_weights()

    def _require_trained_weights(self) -> None:
        """Compare what each engine computes with to what the actor sent after this step.

        Raises:
            WeightsDifferError: nothing was sent. ray.exceptions.RayTaskError: of it, if an engine has other weights.
        """
        workers = self.actor_rollout_wg
        sent, *_ = ray.get(workers.execute_checkpoint_engine(["sent"] * workers.world_size))
        if sent is None or sent.step != self.global_steps:
            last = "none" if sent is None else f"those of step {sent.step} last"
            raise WeightsDifferError(f"the engines were not sent the weights of step {self.global_steps}, but {last}")
        wanted = {"args": (sent.digests, sent.step)}
        ray.get([server.collective_rpc.remote("require_weights", **wanted) for server in self._servers.server_handles])
        self.run_directory.log_event("weights", step=self.global_steps, compared=len(sent.digests))
