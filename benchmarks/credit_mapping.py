"""Time of ``shape_advantages`` on one CPU thread, for 1024 responses of 8192 tokens (the target is 150 ms).

OMP_NUM_THREADS=1 python -m benchmarks.credit_mapping
"""

import argparse
import itertools
import statistics
import time

import torch

from workers.choices import MAPPINGS, NORMALIZATIONS
from workers.credit import shape_advantages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    responses, tokens, steps = arguments.responses, arguments.tokens, arguments.steps

    advantages = torch.randn(responses, 1, generator=generator).repeat(1, tokens)
    credits = torch.randn(responses, steps, generator=generator)
    step_ids = (torch.arange(tokens) * (steps + 1) // tokens - 1).repeat(responses, 1)
    response_mask = torch.ones(responses, tokens, dtype=torch.int64)
    groups = torch.arange(responses) // 8

    step_keys = (torch.arange(responses) // 8)[:, None] * steps + torch.arange(steps)
    rewards = torch.rand(responses, generator=generator)

    print(f"{responses} x {tokens} tokens, {steps} steps, {arguments.repeats} repeats, one thread")
    for mapping, normalization in itertools.product(MAPPINGS, NORMALIZATIONS):
        times = []
        for _ in range(arguments.repeats):
            start = time.perf_counter()
            shape_advantages(
                advantages, credits, step_ids, response_mask, strength=0.5, mapping=mapping,
                normalization=normalization, groups=groups, step_keys=step_keys, rewards=rewards,
            )  # fmt: skip
            times.append(1000 * (time.perf_counter() - start))
        name = f"{mapping}, {normalization}"
        print(f"{name:>22}: median {statistics.median(times):6.1f} ms, best {min(times):6.1f} ms")


if __name__ == "__main__":
    main()
