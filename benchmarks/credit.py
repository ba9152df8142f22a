"""Cost of counterfactual replay: replays per second, time by K and length, and time while samples are generated.

    python benchmarks/credit.py [--samples 64] [--repeats 3]

Runs the real estimation and the real sandbox (embedded, isolation on) on synthetic solutions, no two alike, so that no
cache helps. In the last part samples arrive evenly over some time, as from a model that generates on a GPU and needs no
CPU here, so that replays can be hidden behind generation. Medians over the repeats, with their range.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rewards import compute_score  # noqa: E402
from rewards.counterfactual.replay import Plan, estimate  # noqa: E402
from rewards.verifiers.code import CodeTruth  # noqa: E402

REPLAYS = (1, 2, 4, 8, 16)
LENGTHS = (4, 16, 64)
GENERATION_SECONDS = 10.0


def solution(statements: int, number: int) -> str:
    """A function of `statements` lines; `number` makes it unique."""
    lines = [f"    a{index} = {index + number}" for index in range(statements - 2)]
    return "\n".join(["def f():", *lines, f"    return {number}"])


async def judge(text: str, number: int) -> float:
    truth = CodeTruth(tests=[f"assert f() == {number}"]).model_dump_json()
    return float((await compute_score("code", text, truth))["score"])


async def credit(statements: int, number: int, budget: int) -> int:
    """Verify one solution and estimate its credits; returns the number of replays."""
    text = solution(statements, number)
    score = await judge(text, number)
    if not budget:
        return 0
    found = await estimate(text, lambda changed: judge(changed, number), Plan(budget=budget), score=score)
    assert found.unjudged == 0, found
    return found.replays


async def all_at_once(samples: int, statements: int, budget: int, first: int) -> tuple[float, int]:
    """Seconds until all samples that arrive at once have their credits, and the number of replays."""
    started = time.perf_counter()
    replays = await asyncio.gather(*(credit(statements, first + index, budget) for index in range(samples)))
    return time.perf_counter() - started, sum(replays)


async def while_generating(samples: int, statements: int, budget: int, first: int) -> float:
    """Seconds until all samples have their credits if they arrive evenly over GENERATION_SECONDS."""

    async def later(index: int) -> None:
        await asyncio.sleep(GENERATION_SECONDS * (index + 1) / samples)
        await credit(statements, first + index, budget)

    started = time.perf_counter()
    await asyncio.gather(*(later(index) for index in range(samples)))
    return time.perf_counter() - started


async def medians(repeats: int, measure: Callable[[int], Awaitable[float]]) -> str:
    """Median and range of a measurement; each repeat gets separate numbers."""
    values = [await measure(1_000_000 * (repeat + 1)) for repeat in range(repeats)]
    return f"{statistics.median(values):8.2f}  ({min(values):.2f}-{max(values):.2f})"


async def measure(samples: int, repeats: int) -> None:
    await all_at_once(4, 4, 1, 0)  # starts the sandbox

    async def plain(first: int) -> float:
        return (await all_at_once(samples, 16, 0, first))[0]

    print(f"{samples} samples at once, 16 statements: seconds, median (range) of {repeats}")
    print(f"  verification alone {await medians(repeats, plain)}")
    for budget in REPLAYS:
        counts: list[int] = []

        async def with_credit(first: int, budget: int = budget, counts: list[int] = counts) -> float:
            seconds, replays = await all_at_once(samples, 16, budget, first)
            counts.append(replays)
            return seconds

        text = await medians(repeats, with_credit)
        print(f"  K = {budget:2d}             {text}   {counts[0] / float(text.split()[0]):6.0f} replays/s")
    print("K = 4, by length: seconds")
    for statements in LENGTHS:

        async def of_length(first: int, statements: int = statements) -> float:
            return (await all_at_once(samples, statements, 4, first))[0]

        print(f"  {statements:3d} statements     {await medians(repeats, of_length)}")
    print(f"samples that arrive evenly over {GENERATION_SECONDS:.0f} s: seconds")
    for budget in (0, 4):

        async def hidden(first: int, budget: int = budget) -> float:
            return await while_generating(samples, 16, budget, first)

        print(f"  K = {budget:2d}             {await medians(repeats, hidden)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    asyncio.run(measure(options.samples, options.repeats))


if __name__ == "__main__":
    main()
