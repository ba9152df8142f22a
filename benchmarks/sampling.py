"""What seeded samples cost on a CPU: seconds to sample one token of every row, vLLM's way and ours.

    python -m benchmarks.sampling

vLLM draws one random number per entry of the vocabulary from each row's generator; ours (``workers/cpu/sampling.py``)
draws one per row. Medians of alternating repeats, with their range.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

from workers.cpu.sampling import InverseSampler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=49_152, help="SmolLM2's by default")
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    times = measure(arguments.rows, arguments.vocabulary, arguments.repeats)
    print(f"{arguments.rows} rows of {arguments.vocabulary} entries, milliseconds per token of all rows")
    for name, seconds in times.items():
        median, least, most = (1000 * value for value in (statistics.median(seconds), min(seconds), max(seconds)))
        print(f"  {name:16} {median:7.1f} ({least:.1f}-{most:.1f})")


def measure(rows: int, vocabulary: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of each sampler per repeat, with and without a generator for each row."""
    logits = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0))
    seeded = {row: torch.Generator().manual_seed(row) for row in range(rows)}
    samplers = {"vLLM": TopKTopPSampler("raw_logprobs"), "ours": InverseSampler("raw_logprobs")}
    cases: dict[str, Callable[[], object]] = {}
    for name, sampler in samplers.items():
        for kind, generators in (("", {}), (", seeded", seeded)):
            # A copy: vLLM's sampler writes into its argument.
            cases[name + kind] = lambda sampler=sampler, each=generators: sampler.forward_cpu(
                logits.clone(), each, None, None
            )
    times: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(repeats + 1):
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            if repeat:
                times[name].append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    main()
