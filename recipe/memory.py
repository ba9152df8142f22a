"""Memory plans without training: the memory that a run needs on every GPU.

    python -m recipe.memory experiment=NAME platform=gpu_1x8 model_preset=qwen2_5_7b     one run, in full
    python -m recipe.memory --presets platform=gpu_1x8                                   every preset, LoRA and full
    python -m recipe.memory --supervised 512 sft_experiment=english model.path=FOLDER    a supervised training on a CPU

Further arguments are overrides, as for recipe.train or recipe.sft. ``--gib N`` is the memory of a GPU, in
place of ``run.gpu_memory_gib``; the CPU platform uses the machine's own memory.
"""

import argparse
import sys
from pathlib import Path

from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from rich import box
from rich.console import RenderableType
from rich.table import Table

import configs
from recipe.capacity import ADAPTATIONS
from recipe.capacity.memory_parts import GIB
from recipe.capacity.memory_plan import MemoryPlan, gib, plan_memory
from recipe.capacity.model_shape import UnknownShapeError, shape_of
from recipe.capacity.room import disk_refusals, machine_memory, study_disk
from recipe.capacity.supervised import supervised_disk, supervised_parts, supervised_refusals
from recipe.records.tables import table_console
from recipe.runtime.console import program
from recipe.settings import SettingsError
from workers.cpu.processor import settle_precision

# The workload of the table in docs/how-to/gpus_and_clusters.md; an experiment overrides it.
WORKLOAD = (
    "algorithm.adv_estimator=grpo",
    "data.train_batch_size=256",
    "data.max_prompt_length=1024",
    "data.max_response_length=3072",
    "actor_rollout_ref.actor.ppo_mini_batch_size=64",
    "actor_rollout_ref.rollout.n=8",
)


def presets() -> list[str]:
    """Names of the model presets."""
    return sorted(path.stem for path in Path(configs.__path__[0], "model_preset").glob("*.yaml"))


def read_plan(overrides: list[str], gpu_memory_gib: float | None = None) -> MemoryPlan:
    """Compose a configuration and plan its memory.

    Raises:
        UnknownShapeError: the model's architecture is unknown.
        SettingsError: our groups of the configuration are invalid.
    """
    return _read_plan(overrides, gpu_memory_gib)[1]


def _read_plan(overrides: list[str], gpu_memory_gib: float | None = None) -> tuple[DictConfig, MemoryPlan]:
    with initialize_config_module("configs", version_base=None):
        config: DictConfig = compose("train", overrides)
    settle_precision(config, "run.precision")
    of_gpu = config.run.gpu_memory_gib if gpu_memory_gib is None else gpu_memory_gib
    memory = machine_memory() / GIB if config.trainer.device == "cpu" else of_gpu
    return config, plan_memory(config, shape_of(config.actor_rollout_ref.model.path), memory)


def preset_table(overrides: list[str], gpu_memory_gib: float | None = None) -> Table:
    """One row per preset and adaptation, in Markdown: GiB per GPU in each phase, GiB of a node's host memory."""
    table = Table(
        "preset", "trained", "training", "generating", "engines x sequences", "host", "fits", box=box.MARKDOWN
    )
    for preset in presets():
        for adaptation in ADAPTATIONS:
            chosen = [f"model_preset={preset}", f"adaptation={adaptation}", "run.experiment=plan"]
            plan = read_plan([*chosen, *WORKLOAD, *overrides], gpu_memory_gib)
            layout = plan.layout
            sequences = f"{plan.sizes.replicas} x {plan.concurrent_sequences}"
            fits = "no" if plan.refusals else "yes"
            sums = gib(layout.training_bytes), gib(layout.rollout_bytes)
            table.add_row(preset, adaptation, *sums, sequences, gib(layout.host), fits)
    return table


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=program("memory"), description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--presets", action="store_true", help="a table of every preset, with LoRA and full training")
    parser.add_argument("--gib", type=float, help="memory of one GPU in GiB (default: run.gpu_memory_gib)")
    parser.add_argument(
        "--runs", type=int, default=0, help="on a CPU, also the disk of this many runs and their models"
    )
    parser.add_argument(
        "--supervised", type=int, metavar="TOKENS", help="of recipe.sft, whose longest demonstrations have these tokens"
    )
    arguments, overrides = parser.parse_known_args()
    console = table_console()
    if arguments.presets:
        console.print(preset_table(overrides, arguments.gib))
        return 0
    summary: RenderableType
    try:
        if arguments.supervised:
            summary, refusals = _read_supervised(overrides, arguments.supervised)
        else:
            config, plan = _read_plan(overrides, arguments.gib)
            summary, refusals = plan.render(), plan.refusals or _disk_refusals(config, plan, arguments.runs)
    except (UnknownShapeError, SettingsError) as error:
        console.print(f"no plan: {error}", markup=False, soft_wrap=True)
        return 2
    console.print(summary)
    for refusal in refusals:
        console.print(f"does not work: {refusal}", markup=False, highlight=False, soft_wrap=True)
    return 2 if refusals else 0


def _read_supervised(overrides: list[str], longest: int) -> tuple[str, list[str]]:
    """What a supervised training needs, and why it does not fit; longest: tokens of its longest demonstrations."""
    with initialize_config_module("configs", version_base=None):
        config: DictConfig = compose("sft", overrides)
    settle_precision(config, "precision")
    shape, tokens = shape_of(config.model.path), longest * int(config.data.micro_batch_size_per_gpu)
    memory = sum(supervised_parts(config, shape, tokens).values())
    disk = sum(supervised_disk(config, shape).values())
    summary = f"supervised training of {config.model.path}: {gib(memory)} GiB of memory, {gib(disk)} GiB of disk"
    return summary, supervised_refusals(config, shape, tokens)


def _disk_refusals(config: DictConfig, plan: MemoryPlan, runs: int) -> list[str]:
    """A cluster's disks are not this machine's, and neither is that of a plan for another one."""
    folder = Path(config.run.root, config.run.experiment)
    return disk_refusals(folder, study_disk(config, plan, runs)) if plan.sizes.on_cpu and runs else []


if __name__ == "__main__":
    sys.exit(main())
