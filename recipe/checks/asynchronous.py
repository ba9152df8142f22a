"""Does an asynchronous trainer of ours fit the rest of the configuration?"""

import math
from collections.abc import Callable

from omegaconf import DictConfig, OmegaConf

from recipe.checks import PreflightFinding
from recipe.checks.combinations import PARTS, RefusedOption, refused
from recipe.records.run_directory import RunDirectory
from recipe.settings import Settings

MODE = "trainer.v1.trainer_mode"
SYNCHRONOUS = f"{MODE}=skillcredit"

# Parts of ours that matter here alone, as `recipe.checks.combinations.PARTS`.
OWN_PARTS: dict[str, Callable[[Settings], bool]] = {
    "memory prompts": lambda settings: (
        settings.stages is not None
        and settings.projection.method != "off"
        and settings.projection.constraint_source != "solutions"
    ),
    "credit.methods=[resample]": lambda settings: (
        settings.credit.kind != "off" and "resample" in settings.credit.methods
    ),
    "credit.max_probability": lambda settings: settings.credit.kind != "off" and settings.credit.max_probability < 1.0,
}


def _is_split(config: DictConfig) -> bool:
    """Whether a batch is divided over ranks or optimiser steps."""
    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    return bool(ranks > 1 or config.actor_rollout_ref.actor.ppo_mini_batch_size != config.data.train_batch_size)


def _compares_no_weights(config: DictConfig) -> bool:
    from workers.actor import digests_adapter

    model = config.actor_rollout_ref.model
    trains_adapter = model.get("lora_rank", 0) > 0 and not OmegaConf.select(model, "lora.merge")
    return not (trains_adapter and digests_adapter(config.actor_rollout_ref.rollout))


def _drops_planned(config: DictConfig) -> bool:
    """Whether verl drops prompts before their turn: drawn n batches ahead, they see n + 1 versions of the weights."""
    v1 = config.trainer.v1
    limit = v1.sampler.max_off_policy_threshold
    drops = limit is not None and v1.sampler.max_off_policy_strategy == "drop"
    return drops and limit <= math.ceil(v1.colocate_async.num_warmup_batches)


REFUSALS = (
    RefusedOption(
        MODE,
        lambda config: True,
        "prompts are drawn a batch before the answers by which {parts} decides",
        SYNCHRONOUS,
        ("failures.share", "penalty=ewc"),
    ),
    RefusedOption(
        MODE,
        lambda config: True,
        "{parts} would continue answers with other weights than they were sampled with",
        SYNCHRONOUS,
        ("credit.methods=[resample]",),
    ),
    RefusedOption(
        MODE,
        lambda config: not config.actor_rollout_ref.rollout.calculate_log_probs,
        "{parts} needs probabilities by the weights that sampled, which are gone by then",
        "actor_rollout_ref.rollout.calculate_log_probs=true",
        ("credit.max_probability",),
    ),
    RefusedOption(
        MODE,
        _is_split,
        "a failed group changes how many of a batch are {parts}, which must divide over ranks and optimiser steps",
        "one rank, and actor.ppo_mini_batch_size=data.train_batch_size; or projection.constraint_source=solutions",
        ("memory prompts",),
    ),
    RefusedOption(
        "trainer.v1.sampler.max_off_policy_threshold",
        _drops_planned,
        "verl would drop answers that wait for their turn for so many steps, and the {parts} would lose their prompts",
        "above trainer.v1.colocate_async.num_warmup_batches, or max_off_policy_strategy=wait",
        ("protocol",),
    ),
    RefusedOption(
        MODE,
        _compares_no_weights,
        "nothing would notice an engine that answers with other weights than were trained: only a CPU's engine, "
        "without tensor parallelism, says which adapter it computes with",
        f"train an adapter on platform=cpu, or {SYNCHRONOUS}",
    ),
)


def check(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """A problem for each feature that an asynchronous trainer of ours cannot serve."""
    return refused(REFUSALS, PARTS | OWN_PARTS, config) if _runs_ahead(config) else []


def _runs_ahead(config: DictConfig) -> bool:
    """Whether the trainer is one of ours that generates while it updates."""
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    import recipe.training.asynchronous.trainer  # noqa: F401  (registers it)
    from recipe.training.hooks.step import SkillCreditHooks

    trainer = TRAINER_REGISTRY.get(config.trainer.v1.trainer_mode)
    return trainer is not None and issubclass(trainer, SkillCreditHooks) and trainer.MODE != "sync"
