"""Do the batches divide, and is there enough memory? By the memory plan, and on a CPU by the free memory."""

import psutil
from omegaconf import DictConfig
from rich.console import RenderableType

from recipe.capacity.memory_parts import GIB
from recipe.capacity.memory_plan import MemoryPlan, plan_memory
from recipe.capacity.model_shape import UnknownShapeError, shape_of
from recipe.checks import Problem
from recipe.records.run_directory import RunDirectory
from recipe.settings import SettingsError

# Memory of Ray, verl's actors and one vLLM engine before any model (docs/how-to/gpus_and_clusters.md).
STACK_GIB = 7.0


def check(config: DictConfig, run: RunDirectory) -> list[Problem]:
    """The memory plan's refusals, and a CPU machine with too little free memory for the stack alone."""
    problems = []
    plan = _plan(config)
    if plan is not None:
        problems = [Problem(text, "memory and batches", "change the keys it names") for text in plan.refusals]
    available = psutil.virtual_memory().available / GIB
    if config.trainer.device == "cpu" and available < STACK_GIB:
        problems.append(
            Problem(
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
