"""Does the machine suffice: is there enough memory, and does vLLM's CPU build support this run?"""

import psutil
from omegaconf import DictConfig
from rich.console import RenderableType

from recipe.capacity.memory_parts import GIB
from recipe.capacity.memory_plan import MemoryPlan, plan_memory
from recipe.capacity.model_shape import UnknownShapeError, shape_of
from recipe.checks import PreflightFinding
from recipe.records.run_directory import RunDirectory
from recipe.settings import SettingsError

# Memory of Ray, verl's actors and one vLLM engine before any model (docs/how-to/gpus_and_clusters.md).
STACK_GIB = 7.0


def check_memory(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """The memory plan's refusals, such as batches that do not divide, and too little free memory on a CPU machine."""
    problems = []
    plan = _plan(config)
    if plan is not None:
        problems = [PreflightFinding(text, "memory and batches", "change the keys it names") for text in plan.refusals]
    available = psutil.virtual_memory().available / GIB
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
    """The plan as tables, or the reason why there is none."""
    plan = _plan(config)
    return plan.render() if plan else "no memory plan: the architecture of this model is not known before it is loaded"


def _plan(config: DictConfig) -> MemoryPlan | None:
    total = psutil.virtual_memory().total / GIB
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
