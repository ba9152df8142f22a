"""Divisibility rules of verl, FSDP2 and vLLM, which assert them only after minutes of start-up."""

from recipe.capacity.model_shape import ModelShape
from recipe.capacity.sizes import RunSizes

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"


def batch_refusals(sizes: RunSizes, shape: ModelShape) -> list[str]:
    """One line per broken rule: what is wrong, the key, the fix."""
    return [*_parallelism(sizes, shape), *_batches(sizes), *_lengths(sizes, shape)]


def _parallelism(sizes: RunSizes, shape: ModelShape) -> list[str]:
    found = []
    tensor, key = sizes.engine.tensor_parallel, f"{ROLLOUT}.tensor_model_parallel_size"
    heads, kv_heads = shape.num_attention_heads, shape.num_key_value_heads
    valid = [size for size in divisors(sizes.world) if _splits(shape, size)]
    if sizes.world % tensor:
        found.append(f"{key}={tensor} does not divide the {sizes.world} GPUs. Valid: {_join(valid)}")
    if not _splits(shape, tensor):
        found.append(
            f"{key}={tensor} does not split the model's {heads} heads, {kv_heads} key-value heads and "
            f"{shape.intermediate_size} MLP units evenly. Valid: {_join(valid)}"
        )
    if sizes.gpus_per_node % tensor and tensor % sizes.gpus_per_node:
        found.append(
            f"{key}={tensor}: engines would span parts of nodes of {sizes.gpus_per_node} GPUs. Valid: {_join(valid)}"
        )
    sequence, key = sizes.sequence_parallel, f"{ACTOR}.ulysses_sequence_parallel_size"
    if sizes.world % sequence or heads % sequence:
        valid = [size for size in divisors(sizes.world) if heads % size == 0]
        found.append(f"{key}={sequence} must divide {sizes.world} GPUs and {heads} heads. Valid: {_join(valid)}")
    if sizes.world % sizes.shards:
        found.append(
            f"{ACTOR}.fsdp_config.fsdp_size={sizes.shards} does not divide the {sizes.world} GPUs. "
            f"Valid: -1 (all), {_join(divisors(sizes.world))}"
        )
    return found


def _batches(sizes: RunSizes) -> list[str]:
    found = []
    ranks, answers = sizes.data_parallel, sizes.answers
    mini, key = sizes.mini_batch_prompts, f"{ACTOR}.ppo_mini_batch_size"
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
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu", sizes.micro_batch, sizes.samples_per_rank),
        (f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", sizes.log_prob_micro_batch, sizes.prompts * answers // ranks),
    ):
        if micro is None:
            found.append(
                f"{key} is not set; with use_dynamic_bsz=false verl needs it. Valid: {_join(divisors(samples))}"
            )
        elif samples % micro:
            found.append(f"{key}={micro} does not divide a rank's {samples} samples. Valid: {_join(divisors(samples))}")
    return found


def _lengths(sizes: RunSizes, shape: ModelShape) -> list[str]:
    found = []
    longest = sizes.engine.max_model_len or shape.max_position_embeddings
    if sizes.sequence > longest:
        key = f"{ROLLOUT}.max_model_len" if sizes.engine.max_model_len else "the model's max_position_embeddings"
        found.append(
            f"data.max_prompt_length + data.max_response_length = {sizes.sequence} is more than {key}={longest}. "
            "Lower one of the two"
        )
    for key, tokens in (
        (f"{ACTOR}.ppo_max_token_len_per_gpu", sizes.update_tokens),
        (f"{ROLLOUT}.log_prob_max_token_len_per_gpu", sizes.log_prob_tokens),
    ):
        if sizes.dynamic and tokens * sizes.sequence_parallel < sizes.sequence:
            found.append(
                f"{key}={tokens} is less than one full sequence of {sizes.sequence} tokens. Raise it to at least "
                f"{-(-sizes.sequence // sizes.sequence_parallel)}, or raise {ACTOR}.ulysses_sequence_parallel_size"
            )
    return found


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
