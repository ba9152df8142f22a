"""Parts of a training step on a CPU, tokens per second, share of the processor's matrix throughput, and memory.

    python -m benchmarks.step_parts outputs/three_questions/NAME outputs/pretrained/NAME

Reads finished runs, without the first step of each. Medians over steps, of rates too, and the range of seconds;
seconds until the first step.
The throughput is that of one large product in the run's precision, measured here with all cores: run this on the
machine of the runs, with nothing beside it. Operations are those of the weights' products alone: the forward pass over
prompts and responses, the head over responses; an update with adapters has twice, one of all weights three times as
many. The prompt of a group counts once, as engine and trainer compute it.
Memory: the peak of the trainer's process, and what all programs of the machine
used at the end of an update, the largest of all steps.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from recipe.capacity.model_shape import ModelShape, UnknownShapeError, shape_of
from recipe.records.run_directory import STEP_TIME, RunDirectory
from workers.cpu.processor import threads_per_rank

SKIPPED = 1
MEMORY = {"trainer": "actor/perf/max_memory_allocated_gb", "machine": "actor/perf/cpu_memory_used_gb"}
PARTS = {
    "generation and verification": "timing_s/gen",
    "old log-probabilities": "timing_s/old_log_prob",
    "update": "timing_s/update_actor",
    "weights to vLLM": "timing_s/update_weights",
    "whole step": STEP_TIME,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    options = parser.parse_args()
    for path in options.runs:
        run = RunDirectory(path)
        rows = [row for row in run.metrics() if row["step"] > SKIPPED]
        if not rows:
            parser.error(f"{path}: no step after the first {SKIPPED}")
        try:
            print("\n".join(table(run, rows)), flush=True)
        except UnknownShapeError as error:
            parser.error(f"{path}: {error}")


def table(run: RunDirectory, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Lines of text about one run."""
    config = run.read_config()
    precision = getattr(torch, str(config.run.precision))
    peak = matrix_throughput(precision)
    shape = shape_of(config.actor_rollout_ref.model.path)
    lines = [
        f"{run.path}: {config.run.precision}, {peak / 1e9:.0f} GFLOP/s in one product, "
        f"{seconds_to_ready(run):.0f} s until the first step, {len(rows)} steps"
    ]
    for title, metric in PARTS.items():
        timed = [row for row in rows if metric in row]
        if not timed:
            continue
        seconds = [row[metric] for row in timed]
        line = f"  {title:28s} {statistics.median(seconds):7.2f} s ({min(seconds):.2f}-{max(seconds):.2f})"
        if work := [found[title] for row in timed if title in (found := operations(config, shape, row))]:
            rates = [(tokens / spent, flops / spent) for (tokens, flops), spent in zip(work, seconds, strict=True)]
            per_second, throughput = (statistics.median(of_steps) for of_steps in zip(*rates, strict=True))
            line += f"  {per_second:7.0f} tokens/s  {throughput / peak:5.1%} of the throughput"
        lines.append(line)
    return [*lines, memory(rows)]


def memory(rows: Sequence[dict[str, Any]]) -> str:
    """The largest memory of any step, in GiB."""
    found = {name: [row[metric] for row in rows if metric in row] for name, metric in MEMORY.items()}
    return "  memory " + ", ".join(f"{name} {max(sizes):.1f} GiB" for name, sizes in found.items() if sizes)


def operations(config: DictConfig, shape: ModelShape, row: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Tokens and floating-point operations of a step, by part; of generation the generated tokens."""
    responses = config.data.train_batch_size * config.actor_rollout_ref.rollout.n * row["response_length/mean"]
    tokens = responses + config.data.train_batch_size * row["prompt_length/mean"]
    forward = forward_operations(shape, tokens, responses)
    passes = 2 if config.actor_rollout_ref.model.lora_rank > 0 else 3
    return {
        "generation and verification": (responses, forward),
        "old log-probabilities": (tokens, forward),
        "update": (tokens, passes * forward),
    }


def forward_operations(shape: ModelShape, tokens: float, outputs: float) -> float:
    """Of a forward pass over `tokens`, with the head over `outputs` of them."""
    layers = shape.num_hidden_layers * sum(inputs * size for inputs, size in shape.linears().values())
    return 2 * (layers * tokens + shape.embedding_parameters * outputs)


def matrix_throughput(precision: torch.dtype, size: int = 2048, repeats: int = 9) -> float:
    """Operations per second of one square product with all cores: the median of several."""
    torch.set_num_threads(threads_per_rank(1))
    left, right = (torch.randn(size, size).to(precision) for _ in range(2))
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        left @ right
        found.append(2 * size**3 / (time.perf_counter() - begin))
    return statistics.median(found)


def seconds_to_ready(run: RunDirectory) -> float:
    """Seconds from the first start to the first step."""
    times = {event["event"]: event["time"] for event in reversed(list(run.events()))}
    return float(times["ready"] - times["start"])


if __name__ == "__main__":
    main()
