"""Two steps of GRPO with credit and protected skills on the whole stack: what a user would look at afterwards.

    python -m benchmarks.gpu.training FOLDER --data data/micro --adaptation lora|full [--gpus N] [key=value ...]

Ray, verl, FSDP2, vLLM and the sandbox, with `platform=gpu_1x8` on N GPUs, and the micro suite's trained model. With
`--tensor-parallel 2` a model of random weights instead, for the trained one has five heads: no answer earns a reward,
so only its probabilities are compared.
"""

import argparse
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.gpu import kernels
from benchmarks.gpu.engine import SHAPE, random_model
from benchmarks.gpu.findings import Findings
from recipe.capacity import ADAPTATIONS
from recipe.checks.asynchronous import EXTENSION, EXTENSION_KEY
from recipe.records.run_directory import STEP_TIME, RunDirectory

STEPS = 2
SKILLS = 4
"""That the experiment protects."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder of recipe.micro_start")
    parser.add_argument("--adaptation", choices=ADAPTATIONS, required=True)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a trial without a GPU")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    options, overrides = parser.parse_known_args()
    tensor, model = options.tensor_parallel, options.data / "model"
    if tensor > 1:
        model = random_model(options.folder / "model", model, SHAPE["num_hidden_layers"])
    findings = Findings(options.folder, "tensor_parallel" if tensor > 1 else f"training_{options.adaptation}")
    name = f"{options.adaptation}_{time.time_ns()}"
    command = [
        sys.executable, "-m", "recipe.train", "experiment=three_questions", "run.experiment=gpu_check",
        f"run.root={options.folder / 'outputs'}", f"run.name={name}",
        *model_settings(options.data, model, options.adaptation, options.device, options.gpus, tensor), *overrides,
    ]  # fmt: skip
    begin = time.time()
    subprocess.run(command, check=True)
    findings.add("seconds from the command to its end", time.time() - begin, "s")
    note_run(RunDirectory(options.folder / "outputs" / "gpu_check" / name), findings, rewarded=tensor == 1)


def model_settings(data: Path, model: Path, adaptation: str, device: str, gpus: int, tensor: int = 1) -> list[str]:
    """Overrides of the composed configuration."""
    files = [f"data.{split}_files={data / split}.parquet" for split in ("train", "val")]
    chosen = [
        *files, f"actor_rollout_ref.model.path={model}", f"adaptation={adaptation}",
        f"trainer.total_training_steps={STEPS}", f"trainer.save_freq={STEPS}", f"trainer.test_freq={STEPS}",
        "trainer.val_before_train=false",
        f"trainer.n_gpus_per_node={gpus}",
    ]  # fmt: skip
    if device == "cpu":
        return chosen if adaptation == "lora" else [*chosen, "actor_rollout_ref.rollout.load_format=auto"]
    return [
        "platform=gpu_1x8",
        *chosen,
        *kernels(),
        *([f"+{EXTENSION_KEY}={EXTENSION}"] if adaptation == "lora" and tensor == 1 else []),
        f"actor_rollout_ref.rollout.tensor_model_parallel_size={tensor}",
        "actor_rollout_ref.rollout.agent.num_workers=1",
        "actor_rollout_ref.nccl_timeout=120",  # a rank that hangs is named before this part's time is over
        "reward.num_workers=1",
    ]


def note_run(run: RunDirectory, findings: Findings, rewarded: bool = True) -> None:
    """What the finished run recorded; rewarded: whether some answers of each step earn a reward and others do not."""

    def need(bound: float) -> float | None:
        return bound if rewarded else None

    rows = [row for row in run.metrics() if row["step"] > 0]
    findings.add("steps", len(rows), low=STEPS)
    finite = not any(math.isinf(value) for row in rows for value in row.values() if isinstance(value, float))
    findings.add("no metric is infinite", float(finite), low=1)
    for what, metric, low, high in (
        ("rollout against trainer: mean difference of probabilities", "training/rollout_probs_diff_mean", None, 0.02),
        ("gradient norm", "actor/grad_norm", need(1e-9), None),
        ("replays of a step", "credit/replays", need(1), None),
        ("protected skills of an update", "projection/active_constraints", need(1), None),
        ("those of them without a gradient", "actor/projection/unprotected_skills", None, need(SKILLS - 1)),
        ("optimiser steps that still harm one, to first order", "actor/projection/violated_steps", None, need(0)),
        ("optimiser steps that were skipped", "actor/projection/skipped_steps", None, need(0)),
        ("length of a step", "actor/projection/displacement_norm", need(1e-12), None),
        ("samples that could not be verified", "reward/masked_share", None, 0),
        ("peak memory of training", "actor/perf/max_memory_allocated_gb", None, None),
        ("seconds of a step", STEP_TIME, None, None),
        ("generation", "timing_s/gen", None, None),
        ("update", "timing_s/update_actor", None, None),
        ("weights to vLLM", "timing_s/update_weights", None, None),
    ):
        values = [row[metric] for row in rows if metric in row]
        if not values:
            findings.add(f"{what}: no metric {metric}", math.nan, low=low, high=high)
            continue
        findings.add(f"{what} ({metric})", statistics.median(values), low=low, high=high)
    kept = (run.checkpoints / f"global_step_{STEPS}").is_dir()
    findings.add("the checkpoint of the last step is there", float(kept), low=1)


if __name__ == "__main__":
    main()
