"""How many accelerators the parts of a run have: of the configuration alone, before Ray starts."""

from omegaconf import DictConfig, OmegaConf


def engines_apart(config: DictConfig) -> int:
    """Accelerators of engines that are not the trainer's, and compute while it trains."""
    shared = OmegaConf.select(config, "actor_rollout_ref.hybrid_engine", default=True)
    rollout = OmegaConf.select(config, "actor_rollout_ref.rollout")
    return 0 if shared else int(rollout.nnodes * rollout.n_gpus_per_node)
