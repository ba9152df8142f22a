"""Divisibility rules of verl, FSDP2 and vLLM, which assert them only after minutes of start-up."""

from dataclasses import dataclass

from recipe.capacity.model_shape import ModelShape
from recipe.capacity.sizes import RunSizes

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"


@dataclass(frozen=True)
class _Keys:
    """Where a model's sizes stand in the configuration; micro and tokens: of its passes without gradients."""

    model: str
    engine: str
    micro: str
    tokens: str


_ACTOR = _Keys(
    ACTOR, "fsdp_config", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", f"{ROLLOUT}.log_prob_max_token_len_per_gpu"
)
_CRITIC = _Keys("critic", "fsdp", "critic.forward_micro_batch_size_per_gpu", "critic.forward_max_token_len_per_gpu")


def batch_refusals(sizes: RunSizes, shape: ModelShape) -> list[str]:
    """One line per broken rule: what is wrong, the key, the fix."""
    found = [*_engine(sizes, shape), *_longest(sizes, shape)]
    for keys, own in ((_ACTOR, sizes), (_CRITIC, sizes.critic)):
        if own:
            found += [*_parallelism(own, shape, keys), *_batches(own, keys), *_lengths(own, keys)]
    return found


def _engine(sizes: RunSizes, shape: ModelShape) -> list[str]:
    found = []
    tensor, key = sizes.engine.tensor_parallel, f"{ROLLOUT}.tensor_model_parallel_size"
    heads, kv_heads, copies = shape.num_attention_heads, shape.num_key_value_heads, sizes.engine.data_parallel
    valid = [size for size in divisors(sizes.world) if _splits(shape, size)]
    if sizes.world % tensor:
        found.append(f"{key}={tensor} does not divide the {sizes.world} GPUs. Valid: {_join(valid)}")
    elif sizes.world % sizes.engine.gpus:
        found.append(
            f"{key}={tensor} times {ROLLOUT}.data_parallel_size={copies} does not divide the {sizes.world} GPUs. "
            f"Valid for the latter: {_join(divisors(sizes.world // tensor))}"
        )
    if not _splits(shape, tensor):
        found.append(
            f"{key}={tensor} does not split the model's {heads} heads, {kv_heads} key-value heads and "
            f"{shape.intermediate_size} MLP units evenly. Valid: {_join(valid)}"
        )
    if sizes.gpus_per_node % tensor and tensor % sizes.gpus_per_node:
        found.append(
            f"{key}={tensor}: engines would span parts of nodes of {sizes.gpus_per_node} GPUs. Valid: {_join(valid)}"
        )
    return found


def _longest(sizes: RunSizes, shape: ModelShape) -> list[str]:
    longest = sizes.engine.max_model_len or shape.max_position_embeddings
    if sizes.sequence <= longest:
        return []
    key = f"{ROLLOUT}.max_model_len" if sizes.engine.max_model_len else "the model's max_position_embeddings"
    return [
        f"data.max_prompt_length + data.max_response_length = {sizes.sequence} is more than {key}={longest}. "
        "Lower one of the two"
    ]


def _parallelism(sizes: RunSizes, shape: ModelShape, keys: _Keys) -> list[str]:
    found = []
    heads, kv_heads = shape.num_attention_heads, shape.num_key_value_heads
    sequence, key = sizes.sequence_parallel, f"{keys.model}.ulysses_sequence_parallel_size"

    def exchanges(size: int) -> bool:
        """Whether verl can exchange heads for tokens; key-value heads are repeated up to the group's size."""
        return heads % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0)

    if sizes.world % sequence or not exchanges(sequence):
        valid = [size for size in divisors(sizes.world) if exchanges(size)]
        found.append(
            f"{key}={sequence} must divide {sizes.world} GPUs and {heads} heads, and divide {kv_heads} key-value heads "
            f"or be a multiple of them. Valid: {_join(valid)}"
        )
    if sizes.world % sizes.shards:
        found.append(
            f"{keys.model}.{keys.engine}.fsdp_size={sizes.shards} does not divide the {sizes.world} GPUs. "
            f"Valid: -1 (all), {_join(divisors(sizes.world))}"
        )
    return found


def _batches(sizes: RunSizes, keys: _Keys) -> list[str]:
    found = []
    ranks, answers = sizes.data_parallel, sizes.answers
    mini, key = sizes.mini_batch_prompts, f"{keys.model}.ppo_mini_batch_size"
    if mini * answers % ranks:
        found.append(f"{key}={mini} x rollout.n={answers} samples do not divide over {ranks} data-parallel ranks")
    if sizes.prompts % mini:
        valid = [size for size in divisors(sizes.prompts) if size * answers % ranks == 0]
        found.append(
            f"data.train_batch_size={sizes.prompts} is not a multiple of {key}={mini}; verl would pad the last "
            f"optimiser step with empty samples. Valid for {key}: {_join(valid)}"
        )
    if found or sizes.dynamic:
        return found
    for key, micro, samples in (
        (f"{keys.model}.ppo_micro_batch_size_per_gpu", sizes.micro_batch, sizes.samples_per_rank),
        (keys.micro, sizes.log_prob_micro_batch, sizes.prompts * answers // ranks),
    ):
        if micro is None:
            found.append(
                f"{key} is not set; with use_dynamic_bsz=false verl needs it. Valid: {_join(divisors(samples))}"
            )
        elif samples % micro:
            found.append(f"{key}={micro} does not divide a rank's {samples} samples. Valid: {_join(divisors(samples))}")
    return found


def _lengths(sizes: RunSizes, keys: _Keys) -> list[str]:
    return [
        f"{key}={tokens} is less than one full sequence of {sizes.sequence} tokens. Raise it to at least "
        f"{-(-sizes.sequence // sizes.sequence_parallel)}, or raise {keys.model}.ulysses_sequence_parallel_size"
        for key, tokens in (
            (f"{keys.model}.ppo_max_token_len_per_gpu", sizes.update_tokens),
            (keys.tokens, sizes.log_prob_tokens),
        )
        if sizes.dynamic and tokens * sizes.sequence_parallel < sizes.sequence
    ]


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    return [size for size in range(1, number + 1) if number % size == 0]


def _splits(shape: ModelShape, tensor: int) -> bool:
    """Whether vLLM can split the model: heads and MLP over the group, key-value heads split or copied."""
    kv_heads = shape.num_key_value_heads
    return not (
        shape.num_attention_heads % tensor
        or (kv_heads % tensor and tensor % kv_heads)
        or shape.intermediate_size % tensor
    )


def _join(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers) or "none"
