"""Are our classes registered with verl, which swallows the exceptions of a plug-in that it cannot load?

And are the optional packages installed that this configuration needs?
"""

import importlib.util
from importlib.metadata import entry_points

from omegaconf import DictConfig

from recipe.checks import PreflightFinding
from recipe.records.run_directory import RunDirectory
from workers.aggregators import AGGREGATORS, MissingAggregatorsError, aggregator

FLASH, VLLM = "flash_attention_2", "vllm"


def check_optional_packages(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """Require the chosen engine, torchjd if one of its aggregators is chosen, and flash-attn if its attention is."""
    from verl.trainer.ppo.utils import need_critic

    engine = config.actor_rollout_ref.rollout.name
    if engine != VLLM and importlib.util.find_spec(engine) is None:
        return [
            PreflightFinding(
                f"the engine {engine} is not installed: the pins have {VLLM} alone, and no run here has used another",
                "actor_rollout_ref.rollout.name",
                VLLM,
            )
        ]
    models = {"actor_rollout_ref.model": config.actor_rollout_ref.model}
    models |= {"critic.model": config.critic.model} if need_critic(config) else {}
    chosen = [key for key, one in models.items() if one.override_config.get("attn_implementation") == FLASH]
    if chosen and importlib.util.find_spec("flash_attn") is None:
        return [
            PreflightFinding(
                "the package flash-attn is not installed",
                f"{chosen[-1]}.override_config.attn_implementation",
                "add +kernels=torch (not for a critic), or build it: bash scripts/setup.sh gpu",
            )
        ]
    method = config.projection.method
    if method not in AGGREGATORS:
        return []
    try:
        aggregator(method)
    except MissingAggregatorsError as error:
        return [PreflightFinding(str(error), "projection.method", "install it on every machine, or use projection=qp")]
    return []


def check(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """Require the plug-in's entry point, the platform, and the configured trainer."""
    problems = []
    if "skillcredit" not in {entry.name for entry in entry_points(group="verl.plugins")}:
        problems.append(
            PreflightFinding(
                "verl cannot find this plug-in: its entry point is not installed",
                "entry point group verl.plugins",
                "bash scripts/setup.sh (or: pip install --no-deps -e .)",
            )
        )
    from verl.plugin.platform.platform_manager import PlatformRegistry
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    import recipe.training.asynchronous.trainer
    import recipe.training.register
    import recipe.training.trainer  # noqa: F401

    wanted = config.trainer.v1.trainer_mode
    if wanted not in TRAINER_REGISTRY:
        problems.append(
            PreflightFinding(
                f"verl has no trainer named {wanted!r}",
                "trainer.v1.trainer_mode",
                f"use one of {', '.join(sorted(TRAINER_REGISTRY))}",
            )
        )
    if config.trainer.device == "cpu" and "cpu" not in PlatformRegistry.registered_names():
        problems.append(
            PreflightFinding("verl has no platform named cpu", "VERL_PLATFORM", "bash scripts/setup.sh cpu")
        )
    return problems
