"""Bytes on one device, part by part: pure formulas, each with its source.

Legend: P parameters, L blocks, H hidden size, I intermediate size, Q and K sizes of queries and of keys, V vocabulary
size, T tokens of a micro-batch, S constraints of an update, c bytes per number in computation, w per stored weight.
Weights, gradients, moments, the tensors of projection and penalties, and the KV cache are exact. Activations, logits
and workspaces are estimates of a peak.
"""

from dataclasses import dataclass

from recipe.capacity.model_shape import ModelShape
from recipe.capacity.sizes import PassSizes, RunSizes, TrainedModel

GIB = 2**30

# Reserved on every GPU: two CUDA contexts (trainer, vLLM), NCCL's buffers, fragmentation. An estimate.
RESERVE = 3 * GIB
# vLLM's captured CUDA graphs. An estimate.
CUDA_GRAPHS = 1 * GIB
# Resident size of one Python process that has imported torch, verl or vLLM, and the number of such processes that a CPU
# run has in addition to its ranks and engines (driver, task runner, queue, agent loops, rewards). An estimate.
CPU_PROCESS = GIB // 2
CPU_OTHER_PROCESSES = 8
# Rows per chunk of verl's chunked entropy (entropy_from_logits_chunk_size).
ENTROPY_ROWS = 2048


@dataclass(frozen=True)
class TrainingStateBytes:
    """The training state that persists between steps, in bytes on one rank."""

    weights: int
    gradients: int
    moments: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.moments


def trainable_parameters(shape: ModelShape, model: TrainedModel) -> int:
    """Number of parameters with a gradient: the adapters', or all."""
    return shape.lora_parameters(model.lora_rank, model.target_modules) if model.lora_rank else shape.parameters


def training_state(shape: ModelShape, model: TrainedModel, shards: int) -> TrainingStateBytes:
    """Weights, gradients and Adam's two moments, sharded (ZeRO stage 3, Rajbhandari et al. 2020, section 5).

    FSDP2 keeps all four in the dtype of the weights: 16 bytes per trained parameter in fp32, and w per frozen one.
    """
    trained = trainable_parameters(shape, model)
    stored = shape.parameters + (trained if model.lora_rank else 0)
    size = model.weight_bytes
    return TrainingStateBytes(stored * size // shards, trained * size // shards, 2 * trained * size // shards)


def pinned(size: int, shape: ModelShape, bytes_each: int, shards: int) -> int:
    """Host bytes of an offloaded copy of the parameters with a net size of `size` bytes.

    verl moves each tensor asynchronously, so torch keeps it in a pinned block, and torch's caching host allocator
    rounds a block up to a power of two (c10, CachingHostAllocator). bytes_each: per parameter. shards: ranks that share
    a tensor. An adapter's tensors are assumed to round up as the model's do.
    """
    own = [(-(-parameters // shards) * bytes_each, count) for parameters, count in shape.tensors]
    blocks = sum(count << (size - 1).bit_length() for size, count in own)
    return size * blocks // sum(size * count for size, count in own)


def adapter_snapshot(shape: ModelShape, sizes: RunSizes) -> int:
    """The copy of the parameters at the start of an update, for adapters (workers/actor.py); projection has its own."""
    return _trained(shape, sizes, sizes.actor.weight_bytes) if sizes.actor.lora_rank and not sizes.constraints else 0


def projection(shape: ModelShape, sizes: RunSizes) -> int:
    """S constraint gradients in fp32, the update's start and one step in w bytes (workers/safe_update.py).

    The step's memory also serves the gradient of half of a constraint's samples, which is needed only before the step,
    and the displacement of a step that its anchor sets refuse, which is needed only after it; what the optimiser
    proposed takes w, if it may be projected again. The anchors' forward pass keeps no activations, and its logits once:
    less than those of the update, which are counted. Adam's metric is in fp32; random signs take one byte each, and the
    step before them w.
    """
    if not sizes.constraints:
        return 0
    width = sizes.actor.weight_bytes
    each = 4 * sizes.constraints + (2 + sizes.corrections) * width + 4 * sizes.adam_metric
    return _trained(shape, sizes, each + (1 + width) * sizes.random_signs)


def averages(shape: ModelShape, sizes: RunSizes) -> int:
    """Constraint gradients averaged over updates (``projection.average``), in fp32."""
    return _trained(shape, sizes, 4 * sizes.averages)


def penalty(shape: ModelShape, sizes: RunSizes) -> int:
    """The anchor in w bytes, and EWC's importance in fp32 (workers/penalties.py); rehearsal keeps nothing."""
    if sizes.penalty in ("off", "rehearsal"):
        return 0
    return _trained(shape, sizes, sizes.actor.weight_bytes + (4 if sizes.penalty == "ewc" else 0))


def rehearsal(shape: ModelShape, sizes: RunSizes) -> int:
    """The gradient of the rehearsed solutions in an update, in fp32, and that of their first half in w bytes."""
    return _trained(shape, sizes, 4 + sizes.actor.weight_bytes) if sizes.penalty == "rehearsal" else 0


def fisher(shape: ModelShape, sizes: RunSizes) -> int:
    """EWC's Fisher information of the previous stage, in fp32, in addition to the importance while a stage begins.

    Afterwards the old and the new anchor and importance coexist briefly, in the memory of activations and logits.
    """
    return _trained(shape, sizes, 4) if sizes.penalty == "ewc" else 0


def agop(shape: ModelShape, sizes: RunSizes) -> int:
    """The parts' gradients in fp32, in an update that measures them (workers/agop.py)."""
    return _trained(shape, sizes, 4 * sizes.agop_parts)


def _trained(shape: ModelShape, sizes: RunSizes, each: int) -> int:
    """`each` bytes for each of the actor's trained parameters, sharded like them."""
    return trainable_parameters(shape, sizes.actor) * each // sizes.shards


def gathered_layers(shape: ModelShape, model: TrainedModel) -> int:
    """FSDP2's unsharded layers: this block and the next (2 P_block c) and the output layer (V H c), or all (P c) if
    they stay for the backward pass.

    Training all weights adds one layer's gradient, in c bytes and again in fp32 for the reduction.
    """
    output = shape.embedding_parameters
    kept = 2 * shape.layer_parameters + output if model.resharded else shape.parameters
    whole = kept * model.compute_bytes
    gradient = 0 if model.lora_rank else max(shape.layer_parameters, output) * (model.compute_bytes + 4)
    return whole + gradient


def deferred_gradients(shape: ModelShape, sizes: RunSizes) -> int:
    """Unsharded fp32 gradients, if use_no_sync_for_gradient_accumulation keeps them until the last micro-batch."""
    if not sizes.deferred_gradients or sizes.micro_batches == 1 or sizes.shards == 1:
        return 0
    return 4 * trainable_parameters(shape, sizes.actor)


def activations(shape: ModelShape, sizes: PassSizes) -> int:
    """Activations saved for backward: those of all blocks.

    With checkpointing each block keeps its input (T c H), and one block at a time the rest, plus the MLP's gradients.
    """
    tokens, width, blocks = sizes.update_tokens, sizes.actor.compute_bytes, shape.num_hidden_layers
    block = _packed_block(shape, sizes) if sizes.packed else _block(shape, sizes)
    if not sizes.checkpointing:
        return block * blocks
    return block + tokens * width * (blocks * shape.hidden_size + 3 * shape.intermediate_size)


def _block(shape: ModelShape, sizes: PassSizes) -> int:
    """Of one block with flash attention: T c (9 H + 3 Q + 3 K + 4 I).

    Counted as in Korthikanti et al. 2022 (section 4.1) for RMSNorm in fp32, rotary embedding and a gated MLP.
    """
    inner = 9 * shape.hidden_size + 3 * shape.query_size + 3 * shape.key_value_size + 4 * shape.intermediate_size
    return sizes.update_tokens * sizes.actor.compute_bytes * inner


def _packed_block(shape: ModelShape, sizes: PassSizes) -> int:
    """Of one block by workers.cpu: T (c (4 H + Q + 4 I) + 4 (2 Q)) + 8 K for each token of the sequences.

    Attention is in fp32 and has each sequence's own keys and values. In addition the norms' inputs in fp32 (T 8 H)
    where c is less, and if their weights are trained what these multiply (T 2 c H).
    """
    hidden, query, width = shape.hidden_size, shape.query_size, sizes.actor.compute_bytes
    token = width * (4 * hidden + query + 4 * shape.intermediate_size) + 8 * query
    token += 8 * hidden if width < 4 else 0
    token += 0 if sizes.actor.lora_rank else 2 * width * hidden
    return sizes.update_tokens * token + sizes.attended_tokens * 8 * shape.key_value_size


def logits(shape: ModelShape, sizes: PassSizes) -> int:
    """The larger of two passes over (T, V): the update, and the log-probabilities before it, where verl always computes
    the entropy.

    Copies of the logits are those that torch allocates for verl's functions, without flash-attention's cross entropy,
    which needs no more. Of an entropy in the loss that is compiled, as by default on GPUs, nobody has counted them: as
    many are planned for its gradients as for the logits and theirs. Fused kernels never store the logits.
    """
    if sizes.fused_logits:
        return 0
    width = sizes.actor.compute_bytes
    row, full = shape.vocab_size * width, width == 4
    chunk = min(ENTROPY_ROWS, max(sizes.update_tokens, sizes.log_prob_tokens)) * shape.vocab_size * 4  # in fp32
    if not sizes.entropy_in_loss:
        update = sizes.update_tokens * row * (3 if full else 2)
    elif sizes.compiled_entropy:
        update = sizes.update_tokens * row * 4
    elif sizes.chunked_entropy:  # all chunks in fp32 are kept for the backward pass
        update = sizes.update_tokens * row * (3 if full else 5) + chunk * (4 if full else 5)
    else:
        update = sizes.update_tokens * row * (7 if full else 8)
    log_probs = sizes.log_prob_tokens * row * 3
    if sizes.chunked_entropy:
        log_probs = sizes.log_prob_tokens * row + chunk * (2 if full else 3)
    return max(update, log_probs)


def rollout_weights(shape: ModelShape, sizes: RunSizes) -> int:
    """vLLM's copy of the weights and space for one adapter, split over the tensor-parallel group."""
    adapter = shape.lora_parameters(sizes.actor.lora_rank, sizes.actor.target_modules) if sizes.actor.lora_rank else 0
    return (shape.parameters + adapter) * sizes.engine.weight_bytes // sizes.engine.tensor_parallel


def rollout_workspace(shape: ModelShape, sizes: RunSizes) -> int:
    """vLLM's activations at max_num_batched_tokens, two fp32 copies of max_num_seqs rows of logits, CUDA graphs."""
    width = 2 * shape.hidden_size + 3 * shape.intermediate_size // sizes.engine.tensor_parallel
    tokens = sizes.engine.max_num_batched_tokens * width * sizes.engine.weight_bytes
    samples = sizes.engine.max_num_seqs * shape.vocab_size * 4 * 2
    return tokens + samples + (CUDA_GRAPHS if sizes.engine.cuda_graphs and not sizes.on_cpu else 0)


def cache_bytes_per_token(shape: ModelShape, sizes: RunSizes) -> int:
    """Keys and values of one token on one GPU: 2 L (key-value heads of this GPU) head_dim bytes."""
    heads = max(shape.num_key_value_heads // sizes.engine.tensor_parallel, 1)
    return 2 * shape.num_hidden_layers * heads * shape.head_dim * sizes.engine.weight_bytes
