"""Where the bytes lie in the two phases of a step: training, and generating with vLLM on the same GPUs."""

from dataclasses import dataclass

from recipe.training import memory_parts as parts
from recipe.training.memory_parts import GIB, RESERVE
from recipe.training.memory_sizes import RunSizes, TrainedModel
from recipe.training.model_shape import ModelShape


@dataclass(frozen=True)
class Layout:
    """Bytes by part on one GPU (on the CPU platform: on the machine, whose ranks and engines are there all the time).

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
    if sizes.rollout_sleeps:
        return Layout(
            capacity, training, _kept(sizes, shape) | engine | {"reserve": RESERVE}, cache, _host(sizes, shape)
        )
    return Layout(capacity, training | engine, training | engine, cache, _host(sizes, shape))


def _training(sizes: RunSizes, shape: ModelShape) -> dict[str, int]:
    state = parts.training_state(shape, sizes.actor, sizes.shards)
    on_device = not sizes.actor.offload_policy
    return {
        "weights": state.weights * on_device,
        "gradients": state.gradients * on_device + parts.deferred_gradients(shape, sizes),
        "optimiser": state.moments * on_device,
        **{name: size * on_device for name, size in _guards(sizes, shape).items()},
        "critic": _kept_state(sizes.critic, sizes, shape),
        "gathered layers": parts.gathered_layers(shape, sizes.actor),
        "activations": parts.activations(shape, sizes),
        "logits": parts.logits(shape, sizes),
    }


def _guards(sizes: RunSizes, shape: ModelShape) -> dict[str, int]:
    """What projection, a penalty and a measurement hold in an update, beside the weights as the update finds them.

    param_offload has brought these to the device by then, offload_policy leaves them on the host.
    """
    return {
        "adapter snapshot": parts.adapter_snapshot(shape, sizes),
        "projection": parts.projection(shape, sizes) + parts.averages(shape, sizes),
        "penalty": parts.penalty(shape, sizes) + parts.fisher(shape, sizes),
        "agop": parts.agop(shape, sizes),
    }


def _engine(sizes: RunSizes, shape: ModelShape, capacity: int) -> dict[str, int]:
    weights, workspace = parts.rollout_weights(shape, sizes), parts.rollout_workspace(shape, sizes)
    share = sizes.cpu_cache_gib * GIB if sizes.on_cpu else capacity * sizes.rollout_share - weights - workspace
    return {"vLLM weights": weights, "vLLM workspace": workspace, "KV cache": max(int(share), 0)}


def _kept(sizes: RunSizes, shape: ModelShape) -> dict[str, int]:
    """What the trainer leaves on a GPU while vLLM generates; verl drops the gradients after each update.

    param_offload moves weights, not the averages of projection or what a penalty keeps.
    """
    actor, state = sizes.actor, parts.training_state(shape, sizes.actor, sizes.shards)
    return {
        "weights": 0 if actor.param_offload or actor.offload_policy else state.weights,
        "optimiser": 0 if actor.optimizer_offload or actor.offload_policy else state.moments,
        "projection": 0 if actor.offload_policy else parts.averages(shape, sizes),
        "penalty": 0 if actor.offload_policy else parts.penalty(shape, sizes),
        "critic": _kept_state(sizes.critic, sizes, shape),
    }


def _kept_state(model: TrainedModel | None, sizes: RunSizes, shape: ModelShape) -> int:
    if model is None or model.offload_policy:
        return 0
    state = parts.training_state(shape, model, sizes.shards)
    return state.weights * (not model.param_offload) + state.moments * (not model.optimizer_offload)


def _host(sizes: RunSizes, shape: ModelShape) -> int:
    """Offloaded state, vLLM's sleeping weights, the reference; at least the copies from which the model is loaded.

    What is offloaded or asleep lies in pinned blocks, which take more than what is in them (`parts.pinned`).
    """
    rank = shape.parameters * sizes.reference_bytes // sizes.shards
    for model in filter(None, (sizes.actor, sizes.critic)):
        state = parts.training_state(shape, model, sizes.shards)
        offloaded = state.total - state.gradients - _kept_state(model, sizes, shape)
        offloaded += state.gradients if model.offload_policy else 0
        rank += parts.pinned(offloaded, shape, model.weight_bytes, sizes.shards)
    rank += sum(_guards(sizes, shape).values()) if sizes.actor.offload_policy else 0
    if sizes.actor.lora_rank:  # asleep, vLLM keeps base weights in host memory; without LoRA they are sent anew
        asleep = parts.rollout_weights(shape, sizes)
        rank += parts.pinned(asleep, shape, sizes.rollout_bytes, sizes.tensor_parallel)
    loaders = sizes.gpus_per_node if shape.tie_word_embeddings else 1  # verl reads a tied model in every rank
    # A checkpoint of averages and penalty is written from copies of them; what offload_policy keeps here needs none.
    rank += 0 if sizes.actor.offload_policy else parts.averages(shape, sizes) + parts.penalty(shape, sizes)
    return max(rank * sizes.gpus_per_node, loaders * shape.parameters * sizes.actor.weight_bytes)
