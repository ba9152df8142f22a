"""Memory and disk of a supervised training on a CPU: all ranks of one machine, counted as the plan of a run does."""

from pathlib import Path

from omegaconf import DictConfig

from recipe.capacity import memory_parts as parts
from recipe.capacity.memory_plan import too_little
from recipe.capacity.model_shape import ModelShape
from recipe.capacity.room import disk_refusals, machine_memory
from recipe.capacity.sizes import PassSizes, is_packed, training_options
from recipe.runtime.supervised_folder import STATE

# The command, torchrun's agent.
OTHER_PROCESSES = 2


def supervised_parts(config: DictConfig, shape: ModelShape, tokens: int) -> dict[str, int]:
    """Bytes by part.

    config: composed for `recipe.sft`. tokens: of the longest micro-batch of one rank.
    """
    model, ranks = training_options(config.model, config.engine), config.trainer.n_gpus_per_node
    sizes = PassSizes(
        actor=model,
        checkpointing=config.model.enable_gradient_checkpointing,
        fused_logits=config.model.use_fused_kernels,
        chunked_entropy=False,
        entropy_in_loss=False,
        compiled_entropy=False,
        packed=is_packed(config.model, config.trainer.device),
        update_tokens=tokens,
        attended_tokens=tokens,
        log_prob_tokens=0,
    )
    state = parts.training_state(shape, model, ranks)
    each = {
        "weights": state.weights,
        "gradients": state.gradients,
        "optimiser": state.moments,
        "gathered layers": parts.gathered_layers(shape, model),
        "activations": parts.activations(shape, sizes),
        "logits": parts.logits(shape, sizes),
        "processes": parts.CPU_PROCESS,
    }
    together = {name: size * ranks for name, size in each.items()}
    return together | {"processes": together["processes"] + OTHER_PROCESSES * parts.CPU_PROCESS}


def supervised_disk(config: DictConfig, shape: ModelShape) -> dict[str, int]:
    """Bytes on disk by part; a checkpoint with a state is there twice while the next one is written."""
    model, contents = training_options(config.model, config.engine), set(config.checkpoint.save_contents)
    stored = shape.parameters * model.weight_bytes
    if not contents >= STATE or config.trainer.save_freq == -1:
        return {"of model folder": stored}
    state = parts.training_state(shape, model, 1)
    return {"of model folders": 2 * stored, "of training states": 2 * (state.weights + state.moments)}


def supervised_refusals(config: DictConfig, shape: ModelShape, tokens: int) -> list[str]:
    """Why the training fits neither this machine's memory nor the disk of its folder; empty if it does."""
    found, capacity = supervised_parts(config, shape, tokens), machine_memory()
    disk = disk_refusals(Path(config.trainer.default_local_dir), supervised_disk(config, shape))
    if sum(found.values()) <= capacity:
        return disk
    fixes = [f"data.micro_batch_size_per_gpu={count}" for count in _smaller(config, shape, tokens, capacity)]
    key = "data.micro_batch_size_per_gpu"
    return [too_little("the supervised training", found, capacity, key, fixes[:1]), *disk]


def _smaller(config: DictConfig, shape: ModelShape, tokens: int, capacity: int) -> list[int]:
    """Micro-batch sizes that would fit, the largest first."""
    now = int(config.data.micro_batch_size_per_gpu)
    halves = [now >> power for power in range(1, now.bit_length()) if now % (1 << power) == 0]
    return [
        count
        for count in halves
        if sum(supervised_parts(config, shape, -(-tokens * count // now)).values()) <= capacity
    ]
