"""Does the configuration use options of verl that are incompatible with this plug-in, or that verl itself refuses?

verl would train with the former, but silently ignore or change the requested settings. verl's own rules are checked
here too, before Ray starts.
"""

import contextlib
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

from recipe.checks import PreflightFinding
from recipe.records.run_directory import RunDirectory
from recipe.settings import Settings, SettingsError, read_settings


def check_rules(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """Problems that ``verl.utils.config.validate_config`` finds in a copy of the configuration."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    trial = OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    assert isinstance(trial, DictConfig)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            validate_config(trial, use_reference_policy=need_reference_policy(trial), use_critic=need_critic(trial))
            omega_conf_to_dataclass(trial.actor_rollout_ref.rollout)
    except (AssertionError, ValueError, NotImplementedError, InstantiationException) as error:
        cause = error.__cause__ if isinstance(error, InstantiationException) and error.__cause__ else error
        return [
            PreflightFinding(str(cause) or type(cause).__name__, "verl's validate_config", "change the keys it names")
        ]
    return []


LOSS_MODE = "actor_rollout_ref.actor.policy_loss.loss_mode"
DRO_BETA = "actor_rollout_ref.actor.policy_loss.dro_beta"
FSDP_DTYPE = "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype"

# Our features by their names in the configuration, each with a test for whether a run uses it.
PARTS: dict[str, Callable[[Settings], bool]] = {
    "projection": lambda settings: settings.projection.method != "off",
    "penalty=ewc": lambda settings: settings.penalty.kind == "ewc",
    "penalty=rehearsal": lambda settings: settings.penalty.kind == "rehearsal",
    "agop": lambda settings: settings.agop.every > 0,
    "credit": lambda settings: settings.credit.kind != "off",
    "failures.share": lambda settings: settings.failures.share > 0,
    "protocol": lambda settings: settings.stages is not None or settings.protocol.every_skill,
    "projection.closed_loop": lambda settings: (
        settings.projection.closed_loop and settings.projection.constraint_source != "solutions"
    ),
    "projection.metric=adam": lambda settings: (
        settings.projection.method != "off" and settings.projection.metric == "adam"
    ),
    "projection.verify": lambda settings: settings.projection.method != "off" and settings.projection.verify,
    "projection.forgetting_accuracy=training": lambda settings: (
        settings.projection.when == "forgetting" and settings.projection.forgetting_accuracy == "training"
    ),
}
OPTIMISER, TORCHS = "actor_rollout_ref.actor.optim", "torch.optim"
READ_GRADIENTS = ("projection", "penalty=ewc", "penalty=rehearsal", "agop")
PLAN_BATCHES = ("protocol", "failures.share")


@dataclass(frozen=True)
class RefusedOption:
    """An option of verl that is incompatible with parts of ours.

    key: verl's. chosen: whether a configuration sets the option. why: the reason; ``{parts}`` is replaced by those of
    `parts` that the run uses. parts: names of PARTS; if empty, the option is refused in every run.
    """

    key: str
    chosen: Callable[[DictConfig], bool]
    why: str
    fix: str
    parts: tuple[str, ...] = ()


def _another_trainer(config: DictConfig) -> bool:
    """Whether the trainer is not ours; a name unknown to verl is left to `recipe.checks.names`."""
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    from recipe.training.hooks.step import SkillCreditHooks

    trainer = TRAINER_REGISTRY.get(config.trainer.v1.trainer_mode)
    return trainer is not None and not issubclass(trainer, SkillCreditHooks)


def _ignores_pools(config: DictConfig) -> bool:
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
    from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync

    import recipe.training.asynchronous.trainer  # noqa: F401  (registers ours)

    trainer = TRAINER_REGISTRY.get(config.trainer.v1.trainer_mode, object)
    return not config.actor_rollout_ref.hybrid_engine and not issubclass(trainer, PPOTrainerSeparateAsync)


def _another_reward_manager(config: DictConfig) -> bool:
    from verl.trainer.ppo.reward import resolve_reward_manager_cls

    from rewards.manager import SkillCreditRewardManager

    try:
        return not issubclass(resolve_reward_manager_cls(config), SkillCreditRewardManager)
    except Exception:  # a user's module may raise anything; a class that does not load is not ours
        return True


def _is_true(key: str) -> Callable[[DictConfig], bool]:
    return lambda config: bool(OmegaConf.select(config, key))


def _reward_model(own_pool: bool) -> Callable[[DictConfig], bool]:
    return lambda config: (
        bool(config.reward.reward_model.enable) and bool(config.reward.reward_model.enable_resource_pool) == own_pool
    )


def _another_fetch(config: DictConfig) -> bool:
    return config.data.get("gen_batch_size") not in (None, config.data.train_batch_size)


def _scales_loss(config: DictConfig) -> bool:
    from verl.utils.torch_dtypes import PrecisionType

    is_fp16: bool = PrecisionType.is_fp16(OmegaConf.select(config, FSDP_DTYPE))
    return is_fp16


def _ignores_seeds(config: DictConfig) -> bool:
    """SGLang uses the seeds of samples in its deterministic mode alone (SamplingBatchInfo.from_schedule_batch)."""
    rollout = config.actor_rollout_ref.rollout
    deterministic = OmegaConf.select(rollout, "engine_kwargs.sglang.enable_deterministic_inference")
    return bool(config.run.seeded_samples) and rollout.name == "sglang" and not deterministic


def _correction(config: DictConfig, *keys: str) -> bool:
    """Whether any of these keys of verl's rollout correction is set."""
    return any(OmegaConf.select(config, f"algorithm.rollout_correction.{key}") for key in keys)


def _corrects_unmeasured(config: DictConfig) -> bool:
    wanted = _correction(config, "rollout_is", "rollout_rs", "bypass_mode")
    return wanted and not config.actor_rollout_ref.rollout.calculate_log_probs


def _bypass_without_its_loss(config: DictConfig) -> bool:
    """PPO's loss does without its own where nothing more is configured."""
    of_bypass = str(OmegaConf.select(config, LOSS_MODE)) == "bypass_mode"
    if of_bypass or not _correction(config, "bypass_mode"):
        return of_bypass and not _correction(config, "bypass_mode")
    loss = str(OmegaConf.select(config, "algorithm.rollout_correction.loss_type"))
    return loss != "ppo_clip" or _correction(config, "rollout_is", "rollout_rs")


def _dro_without_beta(config: DictConfig) -> bool:
    beta = OmegaConf.select(config, DRO_BETA)
    return str(OmegaConf.select(config, LOSS_MODE)) == "dro" and not (beta and beta > 0)


def _foreign_optimiser(config: DictConfig) -> bool:
    return str(OmegaConf.select(config, f"{OPTIMISER}.optimizer_impl", default=TORCHS)) != TORCHS


def _has_second_moments(config: DictConfig) -> bool:
    name = str(OmegaConf.select(config, f"{OPTIMISER}.optimizer", default="AdamW")).lower()
    return "adam" in name and name != "adamax"


def two_moments(config: DictConfig) -> bool:
    """Whether the actor's optimiser is torch's Adam or like it, as the memory plan counts."""
    return _has_second_moments(config) and not _foreign_optimiser(config)


def _is_set(group: str) -> Callable[[DictConfig], bool]:
    """Whether any value of the group is set; verl's defaults are all null."""

    def given(node: Any) -> bool:
        return any(map(given, node.values())) if isinstance(node, Mapping) else node is not None

    return lambda config: given(OmegaConf.to_container(config.get(group) or OmegaConf.create()))


# Groups of older versions of verl, still in its configuration files.
LEGACY = ("reward_model", "custom_reward_function", "sandbox_fusion")
# They read a greedy answer's reward, several rewards, sums of squared probabilities; the last needs a group of two.
FAILING_ESTIMATORS = ("remax", "gdpo", "optimal_token_baseline", "tir_optimal_token_baseline", "grpo_passk")
# They divide by the standard deviation of the whole batch, or by its share of samples with a reward (GPG's alpha).
WHITENING = ("reinforce_plus_plus", "reinforce_plus_plus_baseline", "gae", "gpg")
IGNORED = (
    "algorithm.use_pf_ppo",
    "actor_rollout_ref.actor.use_prefix_grouper",
    "actor_rollout_ref.model.tiled_mlp.enabled",
    "actor_rollout_ref.rollout.over_sample_rate",
    "actor_rollout_ref.rollout.multi_stage_wake_up",
)
ROUTING = "actor_rollout_ref.rollout.enable_rollout_routing_replay"
_ONE_BY_ONE = "fetches prompts one at a time, while {parts} plans whole batches"
_DEFAULT = "leave it at verl's default"

REFUSALS = (
    RefusedOption(
        "trainer.v1.trainer_mode",
        _another_trainer,
        "a trainer without this plug-in's hooks: it would train on unverified samples as wrong, and silently ignore "
        "protocol, failures, credit, projection, penalty, agop and the run's records",
        "trainer.v1.trainer_mode=skillcredit, with verl's synchronous trainer, or skillcredit_colocate_async or "
        "skillcredit_separate_async",
    ),
    RefusedOption(
        "trainer.use_v1",
        lambda config: not config.trainer.use_v1,
        "verl's older trainer has none of this plug-in's hooks, and recipe.train runs the V1 trainer in any case",
        "trainer.use_v1=true",
    ),
    RefusedOption(
        "actor_rollout_ref.actor.strategy",
        lambda config: OmegaConf.select(config, "actor_rollout_ref.actor.strategy") == "fsdp",
        "FSDP 1 keeps the parameters of a layer in one flat tensor, in which {parts} could not tell modules apart",
        "actor_rollout_ref.actor.strategy=fsdp2",
        READ_GRADIENTS,
    ),
    RefusedOption(
        "reward.reward_manager",
        _another_reward_manager,
        "not this plug-in's reward manager: it would not mask unverified samples, report a sample's skill, or compute "
        "credit",
        "leave reward_manager as reward=verified sets it, or name a subclass of rewards.manager."
        "SkillCreditRewardManager; for a custom reward set reward.custom_reward_function",
    ),
    RefusedOption(
        "reward.reward_model.enable",
        _reward_model(own_pool=False),
        "a colocated reward model scores after sampling, from prompts and responses alone: the verifiers would miss "
        "data_source and ground_truth, and fail at step 1",
        "reward.reward_model.enable=false; a reward.custom_reward_function may call a model that is served elsewhere",
    ),
    RefusedOption(
        "reward.reward_model.enable",
        _reward_model(own_pool=True),
        "the reward model would be loaded and never used: the reward manager scores with "
        "reward.custom_reward_function alone",
        "reward.reward_model.enable=false; a reward.custom_reward_function may call a model that is served elsewhere",
    ),
    RefusedOption(
        "distillation.enabled",
        _is_true("distillation.enabled"),
        "no plan of this plug-in counts the teacher's accelerators and memory, so that a run could wait for them "
        "forever; credit shapes advantages, which the distillation loss does not use, and projection would take its "
        "gradient for the policy's",
        "distillation.enabled=false; verl's own trainer distils",
    ),
    RefusedOption(
        "algorithm.filter_groups.enable",
        _is_true("algorithm.filter_groups.enable"),
        "leaves out groups that all passed or all failed, so {parts} would take the rest's accuracy for the skill's",
        _DEFAULT,
        ("projection.closed_loop", "projection.forgetting_accuracy=training"),
    ),
    RefusedOption(
        "algorithm.filter_groups.enable",
        _is_true("algorithm.filter_groups.enable"),
        f"{_ONE_BY_ONE}, and drops groups whose answers all failed before their prompts can be retried",
        _DEFAULT,
        PLAN_BATCHES,
    ),
    RefusedOption(
        "trainer.v1.sampler.sync_refill_failed_groups",
        _is_true("trainer.v1.sampler.sync_refill_failed_groups"),
        _ONE_BY_ONE,
        _DEFAULT,
        PLAN_BATCHES,
    ),
    RefusedOption(
        "data.gen_batch_size",
        _another_fetch,
        "fetches partial batches, while {parts} plans whole batches",
        _DEFAULT,
        PLAN_BATCHES,
    ),
    RefusedOption(
        "trainer.v1.sampler.custom_sampler",
        _is_true("trainer.v1.sampler.custom_sampler.path"),
        "may leave out prompts of a step, while {parts} plans whole batches",
        _DEFAULT,
        PLAN_BATCHES,
    ),
    RefusedOption(
        "run.seeded_samples",
        _ignores_seeds,
        "SGLang uses the seeds of samples in its deterministic mode alone, and silently ignores them otherwise",
        "run.seeded_samples=false, or +actor_rollout_ref.rollout.engine_kwargs.sglang."
        "enable_deterministic_inference=true",
    ),
    RefusedOption(FSDP_DTYPE, _scales_loss, "{parts} would read gradients that verl scales for fp16", "bf16 or fp32",
            READ_GRADIENTS),
    RefusedOption(
        "algorithm.rollout_correction",
        _corrects_unmeasured,
        "without the log-probabilities of the engine that samples verl skips the correction, or fails at step 1",
        "actor_rollout_ref.rollout.calculate_log_probs=true",
    ),
    RefusedOption(
        "algorithm.rollout_correction.bypass_mode",
        _bypass_without_its_loss,
        "verl's V1 trainer does not choose the loss of bypass_mode: one without the other silently corrects nothing",
        f"bypass_mode=false; or {LOSS_MODE}=bypass_mode, with rollout_is, rollout_rs and loss_type also under "
        "+actor_rollout_ref.actor.policy_loss.rollout_correction",
    ),
    RefusedOption(
        LOSS_MODE,
        lambda config: OmegaConf.select(config, LOSS_MODE) == "geo_mean",
        "geo_mean takes the mean advantage of each response, which undoes what {parts} does within it",
        "vanilla, gspo or cispo, or credit=off",
        ("credit",),
    ),
    RefusedOption(DRO_BETA, _dro_without_beta, "the dro loss fails in step 1 without it", "above 0"),
    RefusedOption(
        ROUTING,
        _is_true(ROUTING),
        "verl's FSDP engine ignores the experts that the rollouts chose",
        _DEFAULT,
    ),
    RefusedOption(
        "algorithm.adv_estimator",
        lambda config: config.algorithm.adv_estimator in FAILING_ESTIMATORS,
        "would fail: verl's V1 trainer lacks an input of it, or a sample that cannot be verified is a group of one",
        "grpo, or another estimator that reads scores alone",
    ),
    RefusedOption(
        "algorithm.adv_estimator",
        lambda config: config.algorithm.adv_estimator in WHITENING,
        "scales advantages over the batch, so {parts} could not say what one unit of them is worth in reward",
        "grpo or rloo, or projection.constraint_source=solutions",
        ("projection.closed_loop",),
    ),
    RefusedOption(
        "actor_rollout_ref.hybrid_engine",
        _ignores_pools,
        "only verl's separate_async trainer has engines apart from the training GPUs; others ignore this key",
        _DEFAULT,
    ),
    *(RefusedOption(key, _is_true(key), "verl's V1 trainer ignores it", _DEFAULT) for key in IGNORED),
    RefusedOption(
        "actor_rollout_ref.rollout.disaggregation.enabled",
        _is_true("actor_rollout_ref.rollout.disaggregation.enabled"),
        "no plan of this plug-in counts engines apart for prompts and answers, and no run has used them",
        _DEFAULT,
    ),
    RefusedOption(
        f"{OPTIMISER}.optimizer_impl",
        _foreign_optimiser,
        "{parts} reads the optimiser's moments, which other packages keep in forms of their own",
        f"{OPTIMISER}.optimizer_impl=torch.optim",
        ("projection.metric=adam", "projection.verify"),
    ),
    RefusedOption(
        f"{OPTIMISER}.optimizer",
        lambda config: not _has_second_moments(config),
        "{parts} needs the second moments of the gradients, which this optimiser lacks",
        f"{OPTIMISER}.optimizer=AdamW",
        ("projection.metric=adam",),
    ),
    *(
        RefusedOption(
            group,
            _is_set(group),
            f"{group}.* are keys of older versions of verl, which the trainer ignores",
            f"the keys of reward.{group}, or of reward.reward_manager",
        )
        for group in LEGACY
    ),
)  # fmt: skip


def check(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """A problem for each refusal whose option and incompatible part are both in the configuration."""
    return refused(REFUSALS, PARTS, config)


def refused(
    refusals: Iterable[RefusedOption], uses: Mapping[str, Callable[[Settings], bool]], config: DictConfig
) -> list[PreflightFinding]:
    """The findings of these refusals. uses: of each named part, whether a run uses it."""
    try:
        settings = read_settings(config)
    except SettingsError:  # recipe.checks.protocol reports it
        return []
    problems = []
    for refusal in refusals:
        used = [part for part in refusal.parts if uses[part](settings)]
        if (used or not refusal.parts) and refusal.chosen(config):
            problems.append(PreflightFinding(refusal.why.format(parts=", ".join(used)), refusal.key, refusal.fix))
    return problems
