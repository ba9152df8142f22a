"""Can vLLM's CPU build do what a run asks of it: follow the weights that are trained, draw samples by seeds?"""

from omegaconf import DictConfig

from recipe.checks import Problem
from recipe.records.run_directory import RunDirectory


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """On the CPU platform the policy has adapters, which are sent as such, and prompts with seeds are taken whole."""
    if config.trainer.device != "cpu":
        return []
    return [*_weights(config), *_seeds(config)]


def _weights(config: DictConfig) -> list[Problem]:
    """vLLM's CPU build packs the base weights when it loads them, keeps nothing else, and takes no new ones: the run
    would wait for ever where the weights are sent for the first time (tried with ``adaptation=full``).
    """
    model = config.actor_rollout_ref.model
    if model.lora_rank > 0 and not model.lora.get("merge", False):
        return []
    return [
        Problem(
            "vLLM's CPU build cannot take new base weights",
            "adaptation" if model.lora_rank == 0 else "actor_rollout_ref.model.lora.merge",
            "train adapters (adaptation=lora, without merging), or use a GPU platform",
        )
    ]


def _seeds(config: DictConfig) -> list[Problem]:
    """Where a prompt is taken in parts, vLLM takes back what it drew after each but the last, which torch's generator
    of a CPU cannot do: the engine dies in the first step whose prompts do not fit into one batch.
    """
    if not (config.run.seeded_samples and config.actor_rollout_ref.rollout.enable_chunked_prefill):
        return []
    return [
        Problem(
            "vLLM on a CPU cannot draw by seeds what it is asked in parts",
            "actor_rollout_ref.rollout.enable_chunked_prefill",
            "set it to false, or run.seeded_samples=false",
        )
    ]
