"""Can the stages of a protocol run with these batches, and is each validated at its end?"""

from omegaconf import DictConfig, OmegaConf

from recipe.capacity.batch_rules import divisors
from recipe.capacity.sizes import RunSizes, read_sizes
from recipe.checks import PreflightFinding
from recipe.records.run_directory import RunDirectory
from recipe.settings import Settings, SettingsError, read_settings
from recipe.training.schedule import PromptPlan, make_plan, mixed_plan

FSDP = "actor_rollout_ref.actor.fsdp_config"
# verl's estimators that scale or shift advantages over the whole batch.
BATCH_ESTIMATORS = ("gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gdpo", "gpg")


def check(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """Refuse steps without a prompt to train on, samples that do not divide, stages without a validation at their end,
    protection that would never be triggered or be rounded away, and memory samples that would affect training.
    """
    try:
        settings = read_settings(config)
        plan = make_plan(settings, config.data.train_batch_size)
    except SettingsError as error:
        return [PreflightFinding(str(error), "protocol", "change the keys it names")]
    problems = [
        *_check_trigger(settings, config.trainer.test_freq),
        *_check_dtype(config, settings),
    ]
    if plan is None:
        return [*problems, *(_every_skill(config, settings) if settings.protocol.every_skill else [])]
    return [
        *problems,
        *_validations(settings.protocol.stage_steps, config.trainer.test_freq),
        *_check_estimator(plan, config.algorithm.adv_estimator),
        *_divisions(plan, read_sizes(config)),
    ]


def _validations(stage_steps: int, test_freq: int) -> list[PreflightFinding]:
    """Forgetting is measured between the ends of stages."""
    if test_freq > 0 and stage_steps % test_freq == 0:
        return []
    valid = ", ".join(map(str, divisors(stage_steps)))
    what = f"test_freq={test_freq} gives no validation at the end of each stage of {stage_steps} steps"
    return [PreflightFinding(what, "trainer.test_freq", f"one of {valid}")]


def _check_trigger(settings: Settings, test_freq: int) -> list[PreflightFinding]:
    """Protection triggered by a drop in validation accuracy needs a validation before the end of a stage."""
    projection, stages = settings.projection, settings.stages
    if projection.method == "off" or projection.when != "forgetting" or projection.forgetting_accuracy == "training":
        return []
    if test_freq > 0 and (stages is None or test_freq < settings.protocol.stage_steps):
        return []
    where = "" if stages is None else " before a stage ends"
    what = f"projection.when=forgetting is triggered by validations, but test_freq={test_freq} gives none{where}"
    return [
        PreflightFinding(
            what, "trainer.test_freq", "lower it (above 0), or use projection.forgetting_accuracy=training"
        )
    ]


def _check_dtype(config: DictConfig, settings: Settings) -> list[PreflightFinding]:
    """Projection's corrections are small relative to the weights; adapters, too, have the parameters' dtype."""
    from verl.utils.torch_dtypes import PrecisionType

    key = f"{FSDP}.model_dtype"
    dtype = OmegaConf.select(config, key)
    if settings.projection.method in ("off", "measure") or PrecisionType.is_fp32(dtype):
        return []
    what = f"projection writes corrections that parameters in {dtype} would round away"
    return [PreflightFinding(what, key, "fp32; the forward pass stays in mixed_precision.param_dtype")]


def _every_skill(config: DictConfig, settings: Settings) -> list[PreflightFinding]:
    try:
        mixed_plan(dict.fromkeys(settings.skills.names or [], 1), config.data.train_batch_size, steps=1)
    except SettingsError as error:
        return [PreflightFinding(str(error), "data.train_batch_size", "change one of the two")]
    return []


def _check_estimator(plan: PromptPlan, estimator: str) -> list[PreflightFinding]:
    """The advantages of memory samples and of trained samples must not depend on each other."""
    if estimator not in BATCH_ESTIMATORS or not plan.memory.any():
        return []
    what = (
        f"{estimator} scales advantages over the whole batch: samples of memory prompts would change those of the "
        f"trained ones, and get non-zero advantages where all answers scored the same"
    )
    fix = "projection.constraint_source=solutions, or a group-wise estimator such as grpo or rloo"
    return [PreflightFinding(what, "algorithm.adv_estimator", fix)]


def _divisions(plan: PromptPlan, sizes: RunSizes) -> list[PreflightFinding]:
    """Memory and trained samples each divide over ranks, the latter also into the optimiser's steps."""
    if sizes.prompts % sizes.mini_batch_prompts:
        return []  # recipe.checks.machine reports it
    parts = sizes.data_parallel * (sizes.prompts // sizes.mini_batch_prompts)
    for step in range(plan.steps):
        memory = int(plan.memory[step].sum()) * sizes.answers
        trained = sizes.prompts * sizes.answers - memory
        if memory and (memory % sizes.data_parallel or trained % parts):
            what = (
                f"in stage {plan.stage[step] + 1} {memory} memory samples must divide over {sizes.data_parallel} ranks "
                f"and {trained} trained ones over {parts} (ranks x optimiser steps)"
            )
            return [
                PreflightFinding(what, "protocol.memory_per_protected", "change it, data.train_batch_size or rollout.n")
            ]
    return []
