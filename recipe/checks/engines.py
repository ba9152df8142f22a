"""Does the configuration ask verl's engines for what they ignore, compute wrongly, or refuse only when they start?"""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.capacity.sizes import BYTES, COUNTS
from recipe.checks import PreflightFinding
from recipe.checks.combinations import PARTS, RefusedOption, refused
from recipe.records.run_directory import RunDirectory

ACTOR, MODEL, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
# verl changes flash-attention for sequence parallelism (apply_monkey_patch), and workers.cpu its own.
EXCHANGES = ("flash_attention", "packed")
DTYPES = (
    f"{ROLLOUT}.dtype",
    f"{ACTOR}.fsdp_config.model_dtype",
    f"{ACTOR}.fsdp_config.mixed_precision.param_dtype",
    "actor_rollout_ref.ref.fsdp_config.model_dtype",
    "critic.fsdp.model_dtype",
)
IS_LEVELS = (None, "token", "sequence")


def _trained(config: DictConfig) -> list[tuple[Any, Any]]:
    """(training options, model) of the actor, and of the critic if there is one."""
    from verl.trainer.ppo.utils import need_critic

    found = [(config.actor_rollout_ref.actor, config.actor_rollout_ref.model)]
    return [*found, (config.critic, config.critic.model)] if need_critic(config) else found


def _splits_attention(config: DictConfig) -> bool:
    return any(
        options.ulysses_sequence_parallel_size > 1
        and not str(model.override_config.get("attn_implementation", EXCHANGES[0])).startswith(EXCHANGES)
        for options, model in _trained(config)
    )


def _other_strategy(config: DictConfig) -> bool:
    return any(options.strategy not in ("fsdp", "fsdp2") for options, _ in _trained(config)[1:])


def _other_dtype(config: DictConfig) -> bool:
    from verl.utils.torch_dtypes import PrecisionType

    fsdp = config.actor_rollout_ref.actor.fsdp_config
    computed = (fsdp.get("mixed_precision") or {}).get("param_dtype", "bf16")
    try:
        return bool(PrecisionType.to_dtype(fsdp.dtype) != PrecisionType.to_dtype(computed))
    except RuntimeError:  # a dtype that verl does not know
        return True


def _no_adapter(config: DictConfig) -> bool:
    model = config.actor_rollout_ref.model
    path = model.get("lora_adapter_path")
    return bool(path) and (model.lora_rank == 0 or (str(path).startswith(("/", ".")) and not Path(path).is_dir()))


def _unknown_loss(config: DictConfig) -> bool:
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    return OmegaConf.select(config, f"{ACTOR}.policy_loss.loss_mode") not in POLICY_LOSS_REGISTRY


def _unknown_estimator(config: DictConfig) -> bool:
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    return config.algorithm.adv_estimator not in ADV_ESTIMATOR_REGISTRY


def _unknown_optimiser(config: DictConfig) -> bool:
    import torch

    own = config.actor_rollout_ref.actor.optim
    return own.optimizer_impl == "torch.optim" and not hasattr(torch.optim, own.optimizer)


REFUSALS = (
    RefusedOption(
        f"{MODEL}.override_config.attn_implementation",
        _splits_attention,
        "with Ulysses' sequence parallelism each rank would attend within its own part of a sequence: verl exchanges "
        "heads for flash-attention alone, and this plug-in for packed",
        "flash_attention_2, or +kernels=torch; or ulysses_sequence_parallel_size=1",
    ),
    RefusedOption(
        "critic.strategy", _other_strategy, "no run of this project has used another engine than FSDP", "fsdp2"
    ),
    RefusedOption(
        f"{ACTOR}.fsdp_config.dtype",
        _other_dtype,
        "verl's FSDP engine ignores it, and computes in mixed_precision.param_dtype, bf16 unless that is set",
        f"the same as {ACTOR}.fsdp_config.mixed_precision.param_dtype; run.precision sets both on platform=cpu alone",
    ),
    RefusedOption(
        f"{MODEL}.lora.rank",
        lambda config: bool(OmegaConf.select(config, f"{MODEL}.lora.rank", default=0)),
        "it is Megatron's: FSDP would train without it, and vLLM expect adapters of this rank",
        f"{MODEL}.lora_rank, as adaptation=lora sets it",
    ),
    RefusedOption(
        f"{MODEL}.lora_adapter_path",
        _no_adapter,
        "training would begin without this adapter: there is no such folder, or no adapter is trained",
        "an adapter's folder, and adaptation=lora",
    ),
    RefusedOption(
        f"{ACTOR}.use_dynamic_bsz",
        lambda config: (
            config.actor_rollout_ref.actor.use_dynamic_bsz != config.actor_rollout_ref.rollout.log_prob_use_dynamic_bsz
        ),
        "verl requires the same choice for log-probabilities when its workers start",
        f"{ROLLOUT}.log_prob_use_dynamic_bsz=${{{ACTOR}.use_dynamic_bsz}}",
    ),
    RefusedOption(
        f"{ACTOR}.policy_loss.loss_mode", _unknown_loss, "verl has no such loss, and would fail in step 1", "vanilla"
    ),
    RefusedOption(
        "algorithm.adv_estimator", _unknown_estimator, "verl has no such estimator, and would fail in step 1", "grpo"
    ),
    RefusedOption(
        "algorithm.rollout_correction.rollout_is",
        lambda config: OmegaConf.select(config, "algorithm.rollout_correction.rollout_is") not in IS_LEVELS,
        "verl has no such weights, and would fail in step 1",
        "null, token or sequence",
    ),
    RefusedOption(f"{ACTOR}.optim.optimizer", _unknown_optimiser, "torch.optim has no such class", "AdamW"),
    *(
        RefusedOption(
            key,
            lambda config, key=key: OmegaConf.select(config, key) not in (None, *BYTES),  # type: ignore[misc]
            "neither trainer nor memory plan knows this dtype",
            f"one of {', '.join(BYTES)}",
        )
        for key in DTYPES
    ),
    *(
        RefusedOption(
            key,
            lambda config, key=key: (OmegaConf.select(config, key) or 0) < 1,  # type: ignore[misc]
            "verl would wait for ever, or fail when it starts",
            "at least 1",
        )
        for key in (*COUNTS, "actor_rollout_ref.nccl_timeout", f"{ROLLOUT}.agent.num_workers")
    ),
)


def check(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """A problem for each of these options in the configuration."""
    return refused(REFUSALS, PARTS, config)
