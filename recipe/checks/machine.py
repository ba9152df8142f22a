"""Does the machine suffice: is there enough memory and disk, and does vLLM's CPU build support this run?"""

from pathlib import Path

from omegaconf import DictConfig
from rich.console import RenderableType

from data_prep.machine import disk_refusal
from recipe.capacity.memory_parts import GIB
from recipe.capacity.memory_plan import MemoryPlan, arithmetic, gib, plan_memory
from recipe.capacity.model_shape import UnknownShapeError, shape_of
from recipe.capacity.room import disk_refusals, free_memory, machine_memory, run_disk, weights_in_shared_memory
from recipe.checks import PreflightFinding
from recipe.checks.asynchronous import EXTENSION, EXTENSION_KEY, sends_uncompared_adapter
from recipe.checks.combinations import two_moments
from recipe.checks.names import VLLM
from recipe.records.run_directory import RunDirectory
from recipe.settings import SettingsError, engines_apart
from workers.cpu.processor import cores_note, precision_note

# Memory of Ray, verl's actors and one vLLM engine before any model (docs/how-to/gpus_and_clusters.md).
STACK_GIB = 7.0
SHARED_MEMORY = Path("/dev/shm")


def check_memory(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """The memory plan's refusals, such as batches that do not divide; on a CPU machine too little memory or disk."""
    problems = []
    plan = _plan(config)
    if plan is not None:
        problems = [PreflightFinding(text, "memory and batches", "change the keys it names") for text in plan.refusals]
        problems += [*_check_disk(config, run, plan), *_check_shared_memory(config, plan)]
    available = free_memory() / GIB
    if config.trainer.device == "cpu" and available < STACK_GIB:
        problems.append(
            PreflightFinding(
                f"{available:.1f} GiB of memory are free, the stack alone needs {STACK_GIB}",
                "this machine",
                "stop other programs, or use a larger machine",
            )
        )
    return problems


def describe(config: DictConfig) -> RenderableType:
    """The plan as tables; where there is none, `notes` or a finding has the reason."""
    plan = _plan(config)
    return plan.render() if plan else "no memory plan: the reason is below"


def notes(config: DictConfig) -> list[str]:
    """What a user should know before training starts: what is untried; on a CPU precision, cores, memory in use."""
    if config.trainer.device != "cpu":
        return _untried(config)
    lines = [
        precision_note(config.run.precision, "run.precision"),
        cores_note(config.trainer.n_gpus_per_node + engines_apart(config)),
    ]
    plan, free = _plan(config), free_memory()
    needed = plan.layout.training if plan else {}
    if sum(needed.values()) > free:
        lines.append(
            f"warning: {gib(free)} GiB of memory are free, and with full sequences the run needs "
            f"{gib(sum(needed.values()))} ({arithmetic(needed)}): stop other programs, or the system may end the run"
        )
    return lines + _untried(config)


def _untried(config: DictConfig) -> list[str]:
    """What is accepted though no run of this project has used it: other or quantized engines, models without a plan."""
    rollout, lines = config.actor_rollout_ref.rollout, []
    engine, quantized = rollout.name, rollout.quantization or (rollout.qat and rollout.qat.enable and "qat")
    if quantized:
        lines.append(
            f"warning: no run of this project has sampled from quantized weights ({quantized}), which the memory plan "
            "counts as 16-bit ones: watch training/rollout_probs_diff_mean, and see algorithm.rollout_correction"
        )
    if not two_moments(config):
        lines.append(
            "warning: the memory plan counts two moments of the optimiser in the weights' precision, as AdamW's"
        )
    if engine == VLLM and config.trainer.device != "cpu" and sends_uncompared_adapter(config):
        lines.append(
            "warning: nothing compares the adapter that the engine answers with to the trained one; "
            f"+{EXTENSION_KEY}={EXTENSION} does, without tensor parallelism (no run on a GPU has shown it)"
        )
    if engine != VLLM:
        lines.append(f"warning: no run of this project has used {engine}, only {VLLM}: watch the engine's metric")
    try:
        shape_of(config.actor_rollout_ref.model.path)
    except UnknownShapeError as error:
        lines.append(f"warning: no memory plan: {error}")
    return lines


def _check_disk(config: DictConfig, run: RunDirectory, plan: MemoryPlan) -> list[PreflightFinding]:
    if not plan.sizes.on_cpu:
        return []
    present = len(list(run.checkpoints.glob("global_step_*")))
    refusals = disk_refusals(Path(run.path), run_disk(config, plan, present))
    return [
        PreflightFinding(text, "trainer.max_actor_ckpt_to_keep", "keep fewer checkpoints, or set another run.root")
        for text in refusals
    ]


def _check_shared_memory(config: DictConfig, plan: MemoryPlan) -> list[PreflightFinding]:
    """A container has 64 MB by default; a process that writes beyond dies of SIGBUS without a word."""
    if not (plan.sizes.on_cpu and SHARED_MEMORY.is_dir()):
        return []
    needed = weights_in_shared_memory(config, plan)
    why = disk_refusal(SHARED_MEMORY, needed, "start the container with a larger --shm-size")
    key = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"
    return [PreflightFinding(why, key, "give the container more, or train adapters")] if why else []


def _plan(config: DictConfig) -> MemoryPlan | None:
    total = machine_memory() / GIB
    try:
        shape = shape_of(config.actor_rollout_ref.model.path)
        return plan_memory(config, shape, total if config.trainer.device == "cpu" else config.run.gpu_memory_gib)
    except UnknownShapeError:
        return None
    except SettingsError:  # recipe.checks.protocol reports it
        return None


def check_engine(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """On the CPU platform, no chunked prefill with seeded samples.

    With chunked prefill, vLLM rewinds the random generator after each chunk but the last, which torch's CPU
    generator does not support: the engine dies in the first step whose prompts do not fit into one batch.
    """
    if config.trainer.device != "cpu":
        return []
    if not (config.run.seeded_samples and config.actor_rollout_ref.rollout.enable_chunked_prefill):
        return []
    return [
        PreflightFinding(
            "vLLM on a CPU cannot sample with seeds when it prefills prompts in chunks",
            "actor_rollout_ref.rollout.enable_chunked_prefill",
            "set it to false, or run.seeded_samples=false",
        )
    ]
