"""Does vLLM's CPU build support this run: updating the trained weights, and sampling with seeds?"""

from omegaconf import DictConfig

from recipe.checks import Problem
from recipe.records.run_directory import RunDirectory


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """On the CPU platform, require adapters that are sent unmerged, and no chunked prefill with seeded samples."""
    if config.trainer.device != "cpu":
        return []
    return [*_weights(config), *_seeds(config)]


def _weights(config: DictConfig) -> list[Problem]:
    """vLLM's CPU build packs the base weights on loading, keeps no other copy, and accepts no new ones: the run would
    hang when the weights are first sent (tried with ``adaptation=full``).
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
    """With chunked prefill, vLLM rewinds the random generator after each chunk but the last, which torch's CPU
    generator does not support: the engine dies in the first step whose prompts do not fit into one batch.
    """
    if not (config.run.seeded_samples and config.actor_rollout_ref.rollout.enable_chunked_prefill):
        return []
    return [
        Problem(
            "vLLM on a CPU cannot sample with seeds when it prefills prompts in chunks",
            "actor_rollout_ref.rollout.enable_chunked_prefill",
            "set it to false, or run.seeded_samples=false",
        )
    ]
