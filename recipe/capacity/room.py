"""Memory and disk of this machine, and the bytes that a run's checkpoints take on disk."""

from collections.abc import Mapping
from pathlib import Path

import psutil
from omegaconf import DictConfig

from data_prep.machine import available_memory, disk_refusal, total_memory
from recipe.capacity.memory_parts import training_state
from recipe.capacity.memory_plan import MemoryPlan


def machine_memory() -> int:
    """Bytes of memory of this machine, or of its container."""
    return total_memory() or psutil.virtual_memory().total


def free_memory() -> int:
    """Bytes of memory that are free now, in the machine or its container."""
    found = available_memory()
    return psutil.virtual_memory().available if found is None else found


def checkpoint_bytes(config: DictConfig, plan: MemoryPlan) -> dict[str, int]:
    """Of one checkpoint of all ranks, by part: verl writes weights, adapters included, and Adam's moments whole."""
    contents, sizes = set(config.actor_rollout_ref.actor.checkpoint.save_contents), plan.sizes
    state = training_state(plan.shape, sizes.actor, 1)
    found = {
        "weights": state.weights if "model" in contents else 0,
        "optimiser": state.moments if "optimizer" in contents else 0,
        "model folder": plan.shape.parameters * sizes.actor.weight_bytes if "hf_model" in contents else 0,
        "averages and penalty": plan.kept_in_checkpoint,
    }
    if sizes.critic is not None:
        critic = training_state(plan.shape, sizes.critic.actor, 1)
        found["critic"] = critic.weights + critic.moments
    return {name: size for name, size in found.items() if size}


def checkpoints(config: DictConfig) -> int:
    """Number of checkpoints that are on the disk at a time: a run that keeps one has two while it writes the next."""
    trainer = config.trainer
    if trainer.save_freq <= 0:
        return 0
    steps, kept = trainer.total_training_steps, trainer.max_actor_ckpt_to_keep
    written = -(-steps // trainer.save_freq) if steps else 1
    return int(min(written, max(kept, 2)) if kept else written)


def run_disk(config: DictConfig, plan: MemoryPlan, present: int = 0) -> dict[str, int]:
    """Bytes that a run's checkpoints will take, by part; without the `present` ones of a resumed run."""
    count = max(0, checkpoints(config) - present)
    each = checkpoint_bytes(config, plan) if count else {}
    return {f"of {name} in {count} checkpoint{'s' * (count > 1)}": count * size for name, size in each.items()}


def study_disk(config: DictConfig, plan: MemoryPlan, runs: int) -> dict[str, int]:
    """The same of several runs, each with its exported model."""
    exported = plan.shape.parameters * plan.sizes.actor.weight_bytes
    several = {
        f"{name} of {runs} runs" if runs > 1 else name: runs * size for name, size in run_disk(config, plan).items()
    }
    return several | {f"of {runs} exported model{'s' * (runs > 1)}": runs * exported}


def weights_in_shared_memory(config: DictConfig, plan: MemoryPlan) -> dict[str, int]:
    """Bytes of shared memory in which verl gives vLLM its weights on a CPU: a bucket of each rank, or all it sends."""
    model, rollout, sizes = config.actor_rollout_ref.model, config.actor_rollout_ref.rollout, plan.sizes
    # With adapters verl sends the base weights, too, before the first prompt, if vLLM has not read them itself.
    sends_all = not sizes.actor.lora_rank or model.lora.merge or "dummy" in rollout.load_format
    sent = plan.shape.parameters if sends_all else plan.shape.lora_parameters(model.lora_rank, model.target_modules)
    bucket = rollout.checkpoint_engine.update_weights_bucket_megabytes << 20
    return {"of weights on their way to vLLM": sizes.world * min(bucket, sent * sizes.engine.weight_bytes)}


def disk_refusals(folder: Path, parts: Mapping[str, int]) -> list[str]:
    """Why these parts do not fit on the disk of `folder`; empty if they do."""
    why = disk_refusal(folder, parts, "free some or choose another folder")
    return [why] if why else []
