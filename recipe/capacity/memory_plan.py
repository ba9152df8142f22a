"""Memory plan of a run, before anything starts: bytes on each device while training and while generating."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from omegaconf import DictConfig
from rich.console import Group
from rich.table import Table

from recipe.capacity import memory_parts as parts
from recipe.capacity.batch_rules import ACTOR, ROLLOUT, batch_refusals
from recipe.capacity.memory_parts import GIB, RESERVE, averages, cache_bytes_per_token, penalty
from recipe.capacity.model_shape import ModelShape
from recipe.capacity.sizes import RunSizes, read_sizes


@dataclass(frozen=True)
class Layout:
    """Bytes by part on one GPU (on the CPU platform: on the machine, where ranks and engines always coexist).

    ``cache`` is the KV cache of one GPU (one engine on the CPU platform), ``host`` the host memory of one node.
    """

    capacity: int
    training: dict[str, int]
    rollout: dict[str, int]
    cache: int
    host: int

    @property
    def training_bytes(self) -> int:
        return sum(self.training.values())

    @property
    def rollout_bytes(self) -> int:
        return sum(self.rollout.values())


def lay_out(sizes: RunSizes, shape: ModelShape, capacity: int) -> Layout:
    """The layout on devices of ``capacity`` bytes, whether it fits or not."""
    training, engine = _training(sizes, shape), _engine(sizes, shape, capacity)
    cache = engine["KV cache"]
    if sizes.on_cpu:
        processes = parts.CPU_OTHER_PROCESSES + sizes.world + 2 * sizes.replicas
        together = (
            {name: size * sizes.world for name, size in training.items()}
            | {name: size * sizes.replicas for name, size in engine.items()}
            | {"processes": processes * parts.CPU_PROCESS}
        )
        return Layout(capacity, together, together, cache, sum(together.values()))
    training |= {"reserve": RESERVE}
    if sizes.engine.sleeps:
        return Layout(
            capacity, training, _kept(sizes, shape) | engine | {"reserve": RESERVE}, cache, _host(sizes, shape)
        )
    return Layout(capacity, training | engine, training | engine, cache, _host(sizes, shape))


def _training(sizes: RunSizes, shape: ModelShape) -> dict[str, int]:
    """The larger of two updates, which follow each other: the actor's and the critic's."""
    updates = [_actor_update(sizes, shape)]
    if sizes.critic:
        updates.append(_critic_update(sizes, sizes.critic, shape))
    return max(updates, key=lambda update: sum(update.values()))


def _critic_update(sizes: RunSizes, critic: RunSizes, shape: ModelShape) -> dict[str, int]:
    """The critic's state and passes, without logits, beside what stays of the actor."""
    state = parts.training_state(shape, critic.actor, critic.shards)
    return _kept_of_actor(sizes, shape) | {
        "critic": (not critic.actor.offload_policy) * state.total + parts.deferred_gradients(shape, critic),
        "gathered layers": parts.gathered_layers(shape, critic.actor),
        "activations": parts.activations(shape, critic),
    }


def _actor_update(sizes: RunSizes, shape: ModelShape) -> dict[str, int]:
    state = parts.training_state(shape, sizes.actor, sizes.shards)
    on_device = not sizes.actor.offload_policy
    return {
        "weights": state.weights * on_device,
        "gradients": state.gradients * on_device + parts.deferred_gradients(shape, sizes),
        "optimiser": state.moments * on_device,
        **{name: size * on_device for name, size in _guards(sizes, shape).items()},
        "critic": _kept_state(sizes.critic, shape),
        "gathered layers": parts.gathered_layers(shape, sizes.actor),
        "activations": parts.activations(shape, sizes),
        "logits": parts.logits(shape, sizes),
        **({"kept weights": state.weights * sizes.kept_weights} if sizes.kept_weights else {}),
    }


def _guards(sizes: RunSizes, shape: ModelShape) -> dict[str, int]:
    """Tensors of projection, penalty and measurements in an update, in addition to the weights at its start.

    They are where the weights are during an update: on the device with param_offload, on the host with offload_policy.
    """
    return {
        "adapter snapshot": parts.adapter_snapshot(shape, sizes),
        "projection": parts.projection(shape, sizes) + parts.averages(shape, sizes),
        "penalty": parts.penalty(shape, sizes) + parts.fisher(shape, sizes) + parts.rehearsal(shape, sizes),
        "agop": parts.agop(shape, sizes),
    }


def _engine(sizes: RunSizes, shape: ModelShape, capacity: int) -> dict[str, int]:
    weights, workspace = parts.rollout_weights(shape, sizes), parts.rollout_workspace(shape, sizes)
    share = sizes.engine.cpu_cache_gib * GIB if sizes.on_cpu else capacity * sizes.engine.share - weights - workspace
    return {"vLLM weights": weights, "vLLM workspace": workspace, "KV cache": max(int(share), 0)}


def _kept(sizes: RunSizes, shape: ModelShape) -> dict[str, int]:
    """The trainer's memory on a GPU while vLLM generates; verl frees the gradients after each update."""
    return _kept_of_actor(sizes, shape) | {"critic": _kept_state(sizes.critic, shape)}


def _kept_of_actor(sizes: RunSizes, shape: ModelShape) -> dict[str, int]:
    """What stays of the actor on a GPU between its updates.

    param_offload moves the weights, but not projection's averages or a penalty's tensors.
    """
    actor, state = sizes.actor, parts.training_state(shape, sizes.actor, sizes.shards)
    return {
        "weights": 0 if actor.param_offload or actor.offload_policy else state.weights,
        "optimiser": 0 if actor.optimizer_offload or actor.offload_policy else state.moments,
        "projection": 0 if actor.offload_policy else parts.averages(shape, sizes),
        "penalty": 0 if actor.offload_policy else parts.penalty(shape, sizes),
    }


def _kept_state(sizes: RunSizes | None, shape: ModelShape) -> int:
    """Weights and moments of a model, actor or critic, that stay on a GPU between its updates."""
    if sizes is None or sizes.actor.offload_policy:
        return 0
    model, state = sizes.actor, parts.training_state(shape, sizes.actor, sizes.shards)
    return state.weights * (not model.param_offload) + state.moments * (not model.optimizer_offload)


def _host(sizes: RunSizes, shape: ModelShape) -> int:
    """Host bytes of a node: offloaded state, vLLM's sleeping weights, the reference; at least the copies for loading.

    Offloaded and sleeping tensors are in pinned blocks, which are larger than their content (`parts.pinned`).
    """
    reference = shape.parameters * sizes.reference_bytes // sizes.shards
    rank = parts.pinned(reference, shape, sizes.reference_bytes, sizes.shards) if reference else 0
    for trained in filter(None, (sizes, sizes.critic)):
        model, state = trained.actor, parts.training_state(shape, trained.actor, trained.shards)
        offloaded = state.total - state.gradients - _kept_state(trained, shape)
        offloaded += state.gradients if model.offload_policy else 0
        rank += parts.pinned(offloaded, shape, model.weight_bytes, trained.shards)
    rank += sum(_guards(sizes, shape).values()) if sizes.actor.offload_policy else 0
    if sizes.actor.lora_rank:  # asleep, vLLM keeps base weights in host memory; without LoRA they are sent again
        asleep = parts.rollout_weights(shape, sizes)
        rank += parts.pinned(asleep, shape, sizes.engine.weight_bytes, sizes.engine.tensor_parallel)
    loaders = sizes.gpus_per_node if shape.tie_word_embeddings else 1  # verl reads a tied model in every rank
    # Averages and penalty are copied to the host for a checkpoint; with offload_policy they are there already.
    rank += 0 if sizes.actor.offload_policy else parts.averages(shape, sizes) + parts.penalty(shape, sizes)
    return max(rank * sizes.gpus_per_node, loaders * shape.parameters * sizes.actor.weight_bytes)


@dataclass(frozen=True)
class MemoryPlan:
    """The sizes of a run, its memory layout, and ``refusals`` of memory or batches that do not fit (empty: none)."""

    sizes: RunSizes
    shape: ModelShape
    layout: Layout
    refusals: list[str] = field(default_factory=list)

    @property
    def concurrent_sequences(self) -> int:
        """Full sequences that one vLLM engine can process at a time."""
        per_sequence = cache_bytes_per_token(self.shape, self.sizes) * self.sizes.sequence
        return min(self.sizes.engine.max_num_seqs, self.layout.cache // per_sequence)

    @property
    def kept_in_checkpoint(self) -> int:
        """Bytes added to each of verl's checkpoints, over all ranks: averages and penalty, needed for an exact resume.

        Averaged gradients cannot be recomputed from the weights; a run resumed without them would differ.
        """
        return self.sizes.world * (averages(self.shape, self.sizes) + penalty(self.shape, self.sizes))

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that vLLM must be able to serve."""
        return self.sizes.engine.max_model_len or self.shape.max_position_embeddings

    def render(self) -> Group:
        """Two small tables for a console: bytes by part and phase; batches and sequences."""
        layout, sizes = self.layout, self.sizes
        where = "this machine" if sizes.on_cpu else f"each of {sizes.world} GPUs"
        memory = Table("part", "training", "generating", title=f"GiB on {where}, of {layout.capacity / GIB:.0f}")
        for name in dict.fromkeys([*layout.training, *layout.rollout]):
            row = [layout.training.get(name, 0), layout.rollout.get(name, 0)]
            if any(row):
                memory.add_row(name, *(gib(size) if size else "" for size in row))
        memory.add_section()
        memory.add_row("sum", gib(layout.training_bytes), gib(layout.rollout_bytes))
        batches = Table(show_header=False, title="one step, if every sequence is full")
        for name, value in self.facts().items():
            batches.add_row(name, value)
        return Group(memory, batches)

    def facts(self) -> dict[str, str]:
        """Batches and sequences as text."""
        sizes = self.sizes
        kept = self.kept_in_checkpoint
        kind = f"at most {sizes.update_tokens} tokens each" if sizes.dynamic else f"{sizes.micro_batch} samples each"
        return {
            "samples": f"{sizes.prompts} prompts x {sizes.answers} answers of up to {sizes.sequence} tokens",
            "optimiser steps": f"{sizes.prompts / sizes.mini_batch_prompts:g} on {sizes.data_parallel} ranks",
            "of one rank in each": f"{sizes.samples_per_rank} samples in {sizes.micro_batches} micro-batches, {kind}",
            "vLLM": f"{sizes.replicas} engines of {sizes.engine.gpus} GPUs"
            if not sizes.on_cpu
            else f"{sizes.replicas} engines",
            "full sequences at a time": f"{self.concurrent_sequences} per engine",
            "host memory of a node": f"{gib(self.layout.host)} GiB",
        } | ({"averages and penalty in each checkpoint": f"{gib(kept)} GiB"} if kept else {})


def plan_memory(config: DictConfig, shape: ModelShape, gpu_memory_gib: float) -> MemoryPlan:
    """The plan of a configuration that Hydra composed for ``recipe.train``.

    Args:
        shape: that of ``actor_rollout_ref.model.path`` (``model_shape.shape_of``), also assumed for a critic.
        gpu_memory_gib: memory of one GPU; on the CPU platform the memory of the machine.

    Raises:
        SettingsError: as ``read_sizes``.
    """
    return plan_sizes(read_sizes(config), shape, gpu_memory_gib)


def plan_sizes(sizes: RunSizes, shape: ModelShape, gpu_memory_gib: float) -> MemoryPlan:
    """As ``plan_memory``, from numbers instead of a configuration."""
    plan = MemoryPlan(sizes, shape, lay_out(sizes, shape, int(gpu_memory_gib * GIB)))
    # The memory of a run is defined only if its batches divide.
    return replace(plan, refusals=batch_refusals(sizes, shape) or _memory_refusals(plan))


def _memory_refusals(plan: MemoryPlan) -> list[str]:
    layout, sizes = plan.layout, plan.sizes
    capacity = layout.capacity
    found = []
    if layout.training_bytes > capacity:
        fixes = [text for text, other in _changes(plan) if other.training_bytes <= capacity]
        found.append(too_little("training", layout.training, capacity, ACTOR, fixes))
    if layout.rollout_bytes > capacity and not sizes.on_cpu:
        fixes = [text for text, other in _changes(plan) if other.rollout_bytes <= capacity]
        found.append(
            f"generating needs {gib(layout.rollout_bytes)} of {gib(capacity)} GiB: vLLM takes its share in addition to "
            f"the trainer's memory ({ROLLOUT}.gpu_memory_utilization={sizes.engine.share:g}): "
            f"{arithmetic(layout.rollout)}. {_advice(fixes)}"
        )
    needed = plan.longest * cache_bytes_per_token(plan.shape, sizes)
    if layout.cache < needed:
        share = "VLLM_CPU_KVCACHE_SPACE" if sizes.on_cpu else f"{ROLLOUT}.gpu_memory_utilization"
        found.append(
            f"vLLM would not start: {gib(layout.cache)} GiB are left for its KV cache, but one sequence of "
            f"{plan.longest} tokens needs {gib(needed)}. Raise {share}, or set {ROLLOUT}.max_model_len={sizes.sequence}"
        )
    return found


def _changes(plan: MemoryPlan) -> Iterator[tuple[str, Layout]]:
    """Single changes that a user could make, each with the resulting layout."""
    sizes, actor = plan.sizes, plan.sizes.actor
    if sizes.on_cpu:
        yield from _changes_on_a_cpu(plan)
        return
    engine = f"{ACTOR}.fsdp_config"
    room = plan.layout.capacity - plan.layout.rollout_bytes + sizes.engine.share * plan.layout.capacity
    share = int(100 * room / plan.layout.capacity) / 100
    changes = {
        f"{ACTOR}.ppo_max_token_len_per_gpu={sizes.sequence}": replace(
            sizes, update_tokens=sizes.sequence, log_prob_tokens=sizes.sequence
        ),
        f"{ACTOR}.entropy_from_logits_with_chunking=true": replace(sizes, chunked_entropy=True),
        f"{engine}.param_offload=true with optimizer_offload=true": replace(
            sizes, actor=replace(actor, param_offload=True, optimizer_offload=True)
        ),
        f"{engine}.offload_policy=true (Adam on the host, slow)": replace(
            sizes, actor=replace(actor, offload_policy=True)
        ),
        "projection.average=0": replace(sizes, averages=0),
        "agop.every=0": replace(sizes, agop_parts=0),
        "adaptation=lora": replace(sizes, actor=replace(actor, lora_rank=32, target_modules="all-linear")),
        f"trainer.nnodes={2 * sizes.nodes}": replace(sizes, nodes=2 * sizes.nodes),
        f"{ROLLOUT}.gpu_memory_utilization={share:g}": replace(sizes, engine=replace(sizes.engine, share=share)),
    }
    for text, other in changes.items():
        if not (text == "adaptation=lora" and actor.lora_rank):
            yield text, lay_out(other, plan.shape, plan.layout.capacity)


def _changes_on_a_cpu(plan: MemoryPlan) -> Iterator[tuple[str, Layout]]:
    """The same where ranks and engines share the machine's memory: smaller micro-batches, adapters, one rank."""
    sizes = plan.sizes
    changes: dict[str, RunSizes] = {}
    if sizes.micro_batch and sizes.micro_batch > 1:
        for count in (sizes.micro_batch // 2, 1):
            smaller = sizes.with_micro_batches(count, sizes.log_prob_micro_batch or 1)
            changes[f"{ACTOR}.ppo_micro_batch_size_per_gpu={count}"] = smaller
    if not sizes.actor.lora_rank:
        actor = replace(sizes.actor, lora_rank=16, target_modules="all-linear")
        changes["adaptation=lora_small"] = replace(sizes, actor=actor)
    if sizes.world > 1:
        changes["trainer.n_gpus_per_node=1"] = replace(sizes, gpus_per_node=1)
    for text, other in changes.items():
        yield text, lay_out(other, plan.shape, plan.layout.capacity)


def too_little(what: str, parts: dict[str, int], capacity: int, key: str, fixes: list[str]) -> str:
    """One line for what does not fit into `capacity` bytes: the sum and its parts, the key, changes that help."""
    return (
        f"{what} needs {gib(sum(parts.values()))} of {gib(capacity)} GiB ({key}): {arithmetic(parts)}. {_advice(fixes)}"
    )


def arithmetic(parts: dict[str, int]) -> str:
    """Parts of at least 0.1 GiB as a sum, in GiB."""
    return " + ".join(f"{gib(size)} {name}" for name, size in parts.items() if size >= GIB // 20)


def _advice(fixes: list[str]) -> str:
    return f"Try one of: {'; '.join(fixes)}" if fixes else "No single change helps: use a smaller model, or more memory"


def gib(size: float) -> str:
    """Bytes as GiB with one decimal."""
    return f"{size / GIB:.1f}"
