"""Do the batches divide, and does the memory suffice?"""

import psutil
from omegaconf import DictConfig

from recipe.checks.problem import Problem
from recipe.records.run_directory import RunDirectory

# What Ray, verl's actors and one vLLM engine take before any model (docs/platforms.md).
STACK_GIB = 7.0


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """Batch sizes that do not divide; a machine with too little memory."""
    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    prompts, mini = config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size
    samples = config.actor_rollout_ref.rollout.n
    problems = []
    if prompts % mini:
        problems.append(
            Problem(
                f"{prompts} prompts a step do not divide into mini-batches of {mini}",
                "actor_rollout_ref.actor.ppo_mini_batch_size",
                "choose a divisor of data.train_batch_size",
            )
        )
    if mini * samples % ranks:
        problems.append(
            Problem(
                f"a mini-batch of {mini} x {samples} samples does not divide over {ranks} ranks",
                "actor_rollout_ref.actor.ppo_mini_batch_size",
                "make mini-batch x rollout.n a multiple of the ranks",
            )
        )
    if config.trainer.device == "cpu":
        available = psutil.virtual_memory().available / 2**30
        if available < STACK_GIB:
            problems.append(
                Problem(
                    f"{available:.1f} GiB of memory are free, the stack alone needs {STACK_GIB}",
                    "memory",
                    "end other programs, or use a larger machine",
                )
            )
    return problems


def describe(config: DictConfig) -> str:
    """What a step is made of, in one line."""
    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    rollout = config.actor_rollout_ref.rollout
    prompts = config.data.train_batch_size
    return (
        f"a step: {prompts} prompts x {rollout.n} samples = {prompts * rollout.n} trajectories on {ranks} rank(s), "
        f"{prompts // config.actor_rollout_ref.actor.ppo_mini_batch_size} optimiser step(s) an epoch, "
        f"prompts up to {rollout.prompt_length} and responses up to {rollout.response_length} tokens"
    )
