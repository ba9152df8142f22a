"""The Ray actor that builds and runs the trainer: verl's own, with our trainers registered first.

Ray sends the class by value, so nothing of its module is imported where it runs: trainers register in `run`.
"""

import ray
from omegaconf import DictConfig
from verl.trainer.main_ppo import TaskRunnerV1

# verl exports the Ray actor class; only the plain class behind it can be subclassed.
_TaskRunner = TaskRunnerV1.__ray_metadata__.modified_class  # type: ignore[attr-defined]


@ray.remote(num_cpus=1)
class SkillCreditTaskRunner(_TaskRunner):  # type: ignore[misc, valid-type]
    """verl's task runner in a process where our trainers are registered."""

    def run(self, config: DictConfig) -> None:
        import recipe.training.asynchronous.trainer
        import recipe.training.trainer  # noqa: F401  (both register our trainers)

        super().run(config)
