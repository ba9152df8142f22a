"""Can the stages of a protocol be run with these batches, and will each be seen at its end?"""

from omegaconf import DictConfig

from recipe.checks.problem import Problem
from recipe.records.run_directory import RunDirectory
from recipe.training.batch_rules import divisors
from recipe.training.memory_sizes import RunSizes, read_sizes
from recipe.training.plan import Plan, make_plan
from recipe.training.settings import SettingsError, read_settings


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """Steps without a prompt to train on, samples that do not divide, stages without a validation at their end."""
    try:
        settings = read_settings(config)
        plan = make_plan(settings, config.data.train_batch_size)
    except SettingsError as error:
        return [Problem(str(error), "protocol", "change the keys it names")]
    if plan is None:
        return []
    return [
        *_validations(settings.protocol.stage_steps, config.trainer.test_freq),
        *_whole_batches(config),
        *_divisions(plan, read_sizes(config)),
    ]


def _validations(stage_steps: int, test_freq: int) -> list[Problem]:
    """Forgetting is measured between the ends of stages."""
    if test_freq > 0 and stage_steps % test_freq == 0:
        return []
    valid = ", ".join(map(str, divisors(stage_steps)))
    what = f"test_freq={test_freq} gives no validation at the end of each stage of {stage_steps} steps"
    return [Problem(what, "trainer.test_freq", f"one of {valid}")]


def _whole_batches(config: DictConfig) -> list[Problem]:
    """A plan fills whole batches; verl's ways of asking for single prompts would upset it."""
    found = []
    filters = config.algorithm.get("filter_groups")
    if filters is not None and filters.get("enable", False):
        found.append("algorithm.filter_groups.enable")
    if config.trainer.v1.sampler.get("sync_refill_failed_groups", False):
        found.append("trainer.v1.sampler.sync_refill_failed_groups")
    if config.data.get("gen_batch_size") not in (None, config.data.train_batch_size):
        found.append("data.gen_batch_size")
    what = "fetches prompts one by one, which a protocol with stages does not plan"
    return [Problem(what, key, "leave it at verl's default") for key in found]


def _divisions(plan: Plan, sizes: RunSizes) -> list[Problem]:
    """Memory and trained samples each divide over ranks, the latter also into the optimiser's steps."""
    if sizes.prompts % sizes.mini_batch_prompts:
        return []  # recipe.checks.memory says so
    parts = sizes.data_parallel * (sizes.prompts // sizes.mini_batch_prompts)
    for step in range(plan.steps):
        memory = int(plan.memory[step].sum()) * sizes.answers
        trained = sizes.prompts * sizes.answers - memory
        if memory and (memory % sizes.data_parallel or trained % parts):
            what = (
                f"in stage {plan.stage[step] + 1} {memory} memory samples must divide over {sizes.data_parallel} ranks "
                f"and {trained} trained ones over {parts} (ranks x optimiser steps)"
            )
            return [Problem(what, "protocol.memory_per_protected", "change it, data.train_batch_size or rollout.n")]
    return []
