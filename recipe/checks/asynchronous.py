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
UPDATES = "trainer.v1.separate_async.parameter_sync_step"
EXTENSION_KEY = "actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls"
EXTENSION = "workers.digests.extension.ComparedAdapterExtension"
BACKEND = "actor_rollout_ref.rollout.checkpoint_engine.backend"

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


def _trains_adapter(config: DictConfig) -> bool:
    model = config.actor_rollout_ref.model
    return bool(max(model.get("lora_rank", 0), OmegaConf.select(model, "lora.rank", default=0)) > 0)


def _sends_adapter(config: DictConfig) -> bool:
    return _trains_adapter(config) and not OmegaConf.select(config, "actor_rollout_ref.model.lora.merge")


def sends_uncompared_adapter(config: DictConfig) -> bool:
    """Whether an adapter goes to engines that cannot say which one they have."""
    from workers.digests.adapter import HeldAdapter

    return _sends_adapter(config) and not _engine_holds(HeldAdapter, config)


def _compares_no_adapter(config: DictConfig) -> bool:
    return not _sends_adapter(config) or sends_uncompared_adapter(config)


def _compares_no_weights(config: DictConfig) -> bool:
    from workers.cpu import weight_socket
    from workers.digests.weights import HeldWeights

    return OmegaConf.select(config, BACKEND) != weight_socket.BACKEND or not _engine_holds(HeldWeights, config)


def _engine_holds(part: type, config: DictConfig) -> bool:
    """Whether the engine can compare weights of this kind."""
    from workers.actor import extended_by

    try:
        return extended_by(part, config.actor_rollout_ref.rollout)
    except (ImportError, AttributeError, TypeError, ValueError):  # a name of no class, or of one that needs vLLM
        return False


def _engines_elsewhere(config: DictConfig) -> bool:
    return bool(max(config.trainer.nnodes, config.actor_rollout_ref.rollout.nnodes) > 1)


def _other_mini_batches(config: DictConfig) -> bool:
    updates = config.trainer.v1.separate_async.parameter_sync_step
    return bool(config.data.train_batch_size != updates * config.actor_rollout_ref.actor.ppo_mini_batch_size)


def _other_micro_batches(config: DictConfig) -> bool:
    """Whether the samples of a rank's mini-batch, which verl takes one by one here, fill no whole micro-batches."""
    rollout, ranks = config.actor_rollout_ref.rollout, config.trainer.nnodes * config.trainer.n_gpus_per_node
    size = rollout.log_prob_micro_batch_size_per_gpu
    samples = config.actor_rollout_ref.actor.ppo_mini_batch_size * rollout.n // ranks
    return bool(size and not rollout.log_prob_use_dynamic_bsz and samples % size)


def _drops_planned(config: DictConfig) -> bool:
    """Whether verl drops prompts before their turn: drawn n batches ahead, they see n + 1 versions of the weights."""
    v1 = config.trainer.v1
    limit = v1.sampler.max_off_policy_threshold
    drops = limit is not None and v1.sampler.max_off_policy_strategy == "drop"
    return drops and limit <= math.ceil(v1[_ahead_in(config)].num_warmup_batches)


def _ahead_in(config: DictConfig) -> str:
    """verl's mode whose settings say how far generation runs ahead; empty for a trainer that is not ours, or waits."""
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    import recipe.training.asynchronous.trainer  # noqa: F401  (registers ours)
    from recipe.training.hooks.step import SkillCreditHooks

    trainer = TRAINER_REGISTRY.get(config.trainer.v1.trainer_mode)
    if trainer is None or not issubclass(trainer, SkillCreditHooks) or trainer.MODE == "sync":
        return ""
    return trainer.MODE


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
        "{parts} needs probabilities by the weights that sampled, which no longer exist then",
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
        "verl would drop answers that wait for that many steps, and the {parts} would lose their prompts",
        "above num_warmup_batches of verl's mode, or max_off_policy_strategy=wait",
        ("protocol",),
    ),
)
COLOCATED = (
    RefusedOption(
        MODE,
        _compares_no_adapter,
        "nothing would notice an engine that answers with other weights than were trained: no engine with slices of "
        "an adapter, or without an extension of ours, says which one it computes with",
        f"train an adapter on platform=cpu; on GPUs, where no run has shown it, without tensor parallelism and with "
        f"+{EXTENSION_KEY}={EXTENSION}; or {SYNCHRONOUS}",
    ),
)


SEPARATE = (
    RefusedOption(
        MODE,
        _compares_no_weights,
        "nothing would notice an engine that answers with other weights than were trained: only a CPU's engine, "
        "without tensor parallelism, compares them with those that a local socket sent",
        f"platform=cpu, with {BACKEND} at its default there, or {SYNCHRONOUS}",
    ),
    RefusedOption(
        "actor_rollout_ref.model.lora.merge",
        _sends_adapter,
        "verl sends engines apart the base weights alone: they would never get what is trained",
        "actor_rollout_ref.model.lora.merge=true, or adaptation=full",
    ),
    RefusedOption(
        "actor_rollout_ref.hybrid_engine",
        lambda config: bool(config.actor_rollout_ref.hybrid_engine),
        "engines on the trainer's accelerators, beside those apart, would get their weights in another way, unchecked",
        "actor_rollout_ref.hybrid_engine=false",
    ),
    RefusedOption(
        "trainer.v1.separate_async.hybrid_rollout.enable_switch",
        lambda config: bool(config.trainer.v1.separate_async.hybrid_rollout.enable_switch),
        "verl ignores it without engines on the trainer's accelerators",
        "leave it at verl's default",
    ),
    RefusedOption(
        "actor_rollout_ref.rollout.nnodes",
        lambda config: (
            min(config.actor_rollout_ref.rollout.nnodes, config.actor_rollout_ref.rollout.n_gpus_per_node) < 1
        ),
        "there would be no engine",
        "actor_rollout_ref.rollout.nnodes=1, and n_gpus_per_node engines",
    ),
    RefusedOption(
        "actor_rollout_ref.rollout.nnodes",
        _engines_elsewhere,
        "a local socket does not reach engines on other machines",
        "trainer.nnodes=1 and actor_rollout_ref.rollout.nnodes=1",
    ),
    RefusedOption(
        UPDATES,
        _other_mini_batches,
        "a step has that many updates, each of one mini-batch: verl stops unless their product is the batch",
        f"data.train_batch_size={UPDATES} x actor_rollout_ref.actor.ppo_mini_batch_size",
    ),
    RefusedOption(
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
        _other_micro_batches,
        "does not divide a rank's samples of one mini-batch, whose log-probabilities verl computes by themselves here",
        "a divisor of actor_rollout_ref.actor.ppo_mini_batch_size x rollout.n / ranks",
    ),
)
OF_MODE = {"colocate_async": COLOCATED, "separate_async": SEPARATE}


def check(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """A problem for each feature that an asynchronous trainer of ours cannot serve."""
    mode = _ahead_in(config)
    return refused((*REFUSALS, *OF_MODE[mode]), PARTS | OWN_PARTS, config) if mode else []
