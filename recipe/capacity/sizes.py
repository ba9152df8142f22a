"""Sizes read from a composed configuration, on which memory and batches depend."""

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.settings import Settings, SettingsError, engines_apart, read_settings
from recipe.training.protector import Protector
from recipe.training.schedule import make_plan

BYTES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "half": 2, "auto": 2}


COUNTS = (
    *("trainer.nnodes", "trainer.n_gpus_per_node", "data.train_batch_size"),
    *(f"actor_rollout_ref.rollout.{key}" for key in ("n", "tensor_model_parallel_size", "data_parallel_size")),
    *(
        f"{model}.{key}"
        for model in ("actor_rollout_ref.actor", "critic")
        for key in ("ulysses_sequence_parallel_size", "ppo_mini_batch_size")
    ),
)
"""Keys whose values are at least 1."""


@dataclass(frozen=True)
class TrainedModel:
    """Training options of one model (actor or critic)."""

    lora_rank: int
    target_modules: Any
    weight_bytes: int
    compute_bytes: int
    param_offload: bool
    optimizer_offload: bool
    offload_policy: bool
    resharded: bool


@dataclass(frozen=True)
class EngineSizes:
    """Sizes of one vLLM engine. data_parallel: copies of its weights. share: of a GPU's memory. sleeps: frees its cache
    while the trainer works.
    """

    tensor_parallel: int
    weight_bytes: int
    share: float
    sleeps: bool
    cuda_graphs: bool
    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    cpu_cache_gib: float
    data_parallel: int = 1

    @property
    def gpus(self) -> int:
        return self.tensor_parallel * self.data_parallel


@dataclass(frozen=True)
class PassSizes:
    """Sizes of a forward and backward pass over one micro-batch, in tokens of one rank.

    packed: by workers.cpu, on sequences end to end. update_tokens: that are computed. attended_tokens: of the same
    sequences, with those tokens of equal prefixes that are computed once (workers/cpu/prefixes.py).
    """

    actor: TrainedModel
    checkpointing: bool
    fused_logits: bool
    chunked_entropy: bool
    entropy_in_loss: bool
    compiled_entropy: bool
    packed: bool
    update_tokens: int
    attended_tokens: int
    log_prob_tokens: int


@dataclass(frozen=True)
class RunSizes(PassSizes):
    """Sizes of a run: machines, parallelism, tokens and batches. Tokens are counted as if every sequence were full.

    critic: of its update, as if it were the actor's. constraints: number in the update that protects the most skills.
    averages: constraints averaged over updates.
    adam_metric, random_signs, corrections: whether projection uses them (``projection.metric``, ``projection.control``,
    ``projection.verify_corrections``).
    shared_prompt: tokens of a prompt that a pass computes once for all samples of its group; 0: once per sample.
    engines_apart: accelerators of engines apart from the trainer's; 0: they share them. kept_weights: copies of the
    weights between the updates of a step (separate_async).
    """

    on_cpu: bool
    nodes: int
    gpus_per_node: int
    critic: "RunSizes | None"
    reference_bytes: int
    constraints: int
    averages: int
    adam_metric: bool
    random_signs: bool
    corrections: bool
    penalty: str
    agop_parts: int
    fsdp_size: int
    sequence_parallel: int
    deferred_gradients: bool
    sequence: int
    shared_prompt: int
    dynamic: bool
    micro_batch: int | None
    log_prob_micro_batch: int | None
    prompts: int
    mini_batch_prompts: int
    answers: int
    engine: EngineSizes
    engines_apart: int = 0
    kept_weights: int = 0

    @property
    def world(self) -> int:
        """Ranks of the trainer, one per GPU."""
        return self.nodes * self.gpus_per_node

    @property
    def shards(self) -> int:
        """Ranks that share one copy of the training state."""
        return self.fsdp_size if self.fsdp_size > 0 else self.world

    @property
    def data_parallel(self) -> int:
        return max(self.world // self.sequence_parallel, 1)

    @property
    def replicas(self) -> int:
        """Number of vLLM engines."""
        return max((self.engines_apart or self.world) // self.engine.gpus, 1)

    @property
    def samples_per_rank(self) -> int:
        """Samples of one optimiser step on one data-parallel rank."""
        return self.mini_batch_prompts * self.answers // self.data_parallel

    @property
    def micro_batches(self) -> int:
        """Forward and backward passes of a rank per optimiser step, if every sequence is full."""
        if self.micro_batch:
            return -(-self.samples_per_rank // self.micro_batch)
        tokens = self.samples_per_rank * self.sequence
        return max(1, min(self.samples_per_rank, -(-tokens // (self.update_tokens * self.sequence_parallel))))

    def computed_tokens(self, samples: int) -> int:
        """Tokens of a micro-batch of `samples` samples that a rank computes, if every sequence is full.

        One rank has the samples of a group one after the other, so a micro-batch has parts of at most two groups.
        Several ranks deal the samples of a group by length.
        """
        answers = self.answers
        if self.data_parallel == 1:
            prompts = -(-(samples + answers - math.gcd(samples, answers)) // answers)
        else:
            prompts = min(samples, self.mini_batch_prompts)
        repeated = (samples - prompts) * self.shared_prompt
        return (samples * self.sequence - repeated) // self.sequence_parallel

    def with_micro_batches(self, update: int, log_prob: int) -> "RunSizes":
        """These sizes with so many samples in the micro-batches of an update and of log-probabilities."""
        return replace(
            self,
            micro_batch=update,
            update_tokens=self.computed_tokens(update),
            attended_tokens=update * self.sequence // self.sequence_parallel,
            log_prob_micro_batch=log_prob,
            log_prob_tokens=self.computed_tokens(log_prob),
        )


def read_sizes(config: DictConfig) -> RunSizes:
    """Read the sizes of a configuration that Hydra composed for ``recipe.train``.

    Raises:
        SettingsError: our groups of the configuration are invalid, its stages cannot be filled, or a count is below 1.
    """
    for key in COUNTS:
        if OmegaConf.select(config, key) < 1:
            raise SettingsError(f"{key}={OmegaConf.select(config, key)}: set at least 1")
    from verl.trainer.ppo.utils import need_critic, need_reference_policy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verl warns that GRPO has no critic
        has_critic = need_critic(config)
    actor, rollout, model = (config.actor_rollout_ref[name] for name in ("actor", "rollout", "model"))
    fsdp = actor.fsdp_config
    sequence = config.data.max_prompt_length + config.data.max_response_length
    dynamic = actor.use_dynamic_bsz
    sequence_parallel = max(actor.ulysses_sequence_parallel_size, fsdp.ulysses_sequence_parallel_size)
    trained = training_options(model, fsdp)
    reads_reference = need_reference_policy(config) and trained.lora_rank == 0  # with LoRA it is the base model
    settings = read_settings(config)
    apart = engines_apart(config)
    constraints = _constraint_names(settings, config.data.train_batch_size)
    packed = is_packed(model, config.trainer.device)
    sizes = RunSizes(
        on_cpu=config.trainer.device == "cpu",
        engines_apart=apart,
        kept_weights=1 + (config.trainer.v1.separate_async.parameter_sync_step > 1) if apart else 0,
        nodes=config.trainer.nnodes,
        gpus_per_node=config.trainer.n_gpus_per_node,
        actor=trained,
        critic=None,
        reference_bytes=_bytes(config.actor_rollout_ref.ref.fsdp_config.model_dtype) if reads_reference else 0,
        constraints=max(map(len, constraints)),
        averages=len(set().union(*constraints)) if settings.projection.average else 0,
        adam_metric=settings.projection.metric == "adam",
        random_signs=settings.projection.control == "random_signs",
        corrections=settings.projection.corrections > 0,
        penalty=settings.penalty.kind,
        agop_parts=settings.agop.parts if settings.agop.every else 0,
        fsdp_size=fsdp.fsdp_size,
        sequence_parallel=sequence_parallel,
        checkpointing=model.enable_gradient_checkpointing,
        deferred_gradients=fsdp.use_no_sync_for_gradient_accumulation,
        fused_logits=model.use_fused_kernels,
        chunked_entropy=actor.entropy_from_logits_with_chunking,
        entropy_in_loss=bool(actor.entropy_coeff) or actor.calculate_entropy,
        compiled_entropy=bool(fsdp.use_torch_compile),
        sequence=sequence,
        packed=packed,
        shared_prompt=config.data.max_prompt_length if packed and _only_groups(settings) else 0,
        update_tokens=actor.ppo_max_token_len_per_gpu,
        attended_tokens=actor.ppo_max_token_len_per_gpu,
        log_prob_tokens=rollout.log_prob_max_token_len_per_gpu,
        dynamic=dynamic,
        micro_batch=None,
        log_prob_micro_batch=None,
        prompts=config.data.train_batch_size,
        mini_batch_prompts=actor.ppo_mini_batch_size,
        answers=rollout.n,
        engine=_engine_sizes(config),
    )
    if not dynamic:
        sizes = _counted(sizes, actor.ppo_micro_batch_size_per_gpu, rollout.log_prob_micro_batch_size_per_gpu)
    return replace(sizes, critic=_critic_sizes(config, sizes)) if has_critic else sizes


def _counted(sizes: RunSizes, update: int | None, log_prob: int | None) -> RunSizes:
    """These sizes with micro-batches of so many samples; one, if a size is not set."""
    counted = sizes.with_micro_batches(update or 1, log_prob or 1)
    return replace(counted, micro_batch=update, log_prob_micro_batch=log_prob)


def _critic_sizes(config: DictConfig, sizes: RunSizes) -> RunSizes:
    """The sizes of the critic's update, which nothing of ours changes."""
    critic, fsdp, model = config.critic, config.critic.fsdp, config.critic.model
    own = replace(
        sizes,
        actor=training_options(model, fsdp),
        checkpointing=model.enable_gradient_checkpointing,
        packed=is_packed(model, config.trainer.device),
        deferred_gradients=fsdp.use_no_sync_for_gradient_accumulation,
        fsdp_size=fsdp.fsdp_size,
        sequence_parallel=max(critic.ulysses_sequence_parallel_size, fsdp.ulysses_sequence_parallel_size),
        update_tokens=critic.ppo_max_token_len_per_gpu,
        attended_tokens=critic.ppo_max_token_len_per_gpu,
        log_prob_tokens=critic.forward_max_token_len_per_gpu,
        dynamic=critic.use_dynamic_bsz,
        mini_batch_prompts=critic.ppo_mini_batch_size,
        micro_batch=None,
        log_prob_micro_batch=None,
    )
    if own.dynamic:
        return own
    return _counted(own, critic.ppo_micro_batch_size_per_gpu, critic.forward_micro_batch_size_per_gpu)


def _engine_sizes(config: DictConfig) -> EngineSizes:
    rollout = config.actor_rollout_ref.rollout
    environment = OmegaConf.select(config, "ray_kwargs.ray_init.runtime_env.env_vars") or {}
    return EngineSizes(
        tensor_parallel=rollout.tensor_model_parallel_size,
        data_parallel=rollout.data_parallel_size,
        weight_bytes=_bytes(rollout.dtype),
        share=rollout.gpu_memory_utilization,
        sleeps=rollout.free_cache_engine,
        cuda_graphs=not rollout.enforce_eager,
        max_model_len=rollout.max_model_len,
        max_num_seqs=rollout.max_num_seqs,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
        cpu_cache_gib=float(environment.get("VLLM_CPU_KVCACHE_SPACE", 0)),
    )


def _bytes(dtype: str) -> int:
    """Bytes per number.

    Raises:
        SettingsError: a dtype in which neither verl trains nor vLLM keeps weights.
    """
    if dtype not in BYTES:
        raise SettingsError(f"the memory plan does not know the dtype {dtype}: name one of {', '.join(BYTES)}")
    return BYTES[dtype]


def is_packed(model: DictConfig, device: str) -> bool:
    """Whether workers.cpu computes the passes of a model: sequences end to end, equal prefixes once."""
    return device == "cpu" and bool(model.use_remove_padding and model.use_fused_kernels)


def _only_groups(settings: Settings) -> bool:
    """Whether all passes are over samples of groups; stored solutions have a prompt each."""
    projection = settings.projection
    from_solutions = projection.method != "off" and projection.constraint_source != "rollouts"
    return not from_solutions and settings.penalty.kind == "off"


def _constraint_names(settings: Settings, batch: int) -> list[set[str]]:
    """The constraints of an update in each stage, with every skill protected that may be."""
    always = settings.projection.model_copy(update={"when": "always"})
    protector = Protector(settings.model_copy(update={"projection": always}))
    plan = make_plan(settings, batch)
    stages = plan.protected if plan else [None]
    return [set(found.names) if (found := protector.protection(stage)) else set() for stage in stages]


def training_options(model: DictConfig, engine: DictConfig) -> TrainedModel:
    """Training options of one model, from its group and its engine's."""
    precision = engine.get("mixed_precision") or {}
    return TrainedModel(
        lora_rank=model.lora_rank,
        target_modules=model.target_modules,
        weight_bytes=_bytes(engine.model_dtype or "fp32"),
        # verl computes in bf16 unless mixed_precision names another dtype; it ignores fsdp_config.dtype.
        compute_bytes=_bytes(precision.get("param_dtype", "bf16")),
        param_offload=engine.param_offload,
        optimizer_offload=engine.optimizer_offload,
        offload_policy=engine.offload_policy,
        resharded=engine.reshard_after_forward,
    )
