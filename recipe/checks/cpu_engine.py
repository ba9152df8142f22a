"""Can vLLM's CPU build follow the weights that are trained?"""

from omegaconf import DictConfig

from recipe.checks.problem import Problem
from recipe.records.run_directory import RunDirectory


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """On the CPU platform the policy has adapters, which are sent as such.

    vLLM's CPU build packs the base weights when it loads them, keeps nothing else, and takes no new ones: the run would
    wait for ever where the weights are sent for the first time (tried with ``adaptation=full``).
    """
    model = config.actor_rollout_ref.model
    if config.trainer.device != "cpu" or (model.lora_rank > 0 and not model.lora.get("merge", False)):
        return []
    return [
        Problem(
            "vLLM's CPU build cannot take new base weights",
            "adaptation" if model.lora_rank == 0 else "actor_rollout_ref.model.lora.merge",
            "train adapters (adaptation=lora, without merging), or use a GPU platform",
        )
    ]
