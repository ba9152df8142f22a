"""Cost of counterfactual replay: replays per second, time by K and length, and time while samples are generated.

    python -m benchmarks.credit [--samples 64] [--repeats 3]
    python -m benchmarks.credit --step [--repeats 3]

Runs the real estimation and the real sandbox (embedded, isolation on) on synthetic solutions, no two alike, so that no
cache helps; also by kind of intervention, in groups of eight of which half fail. In the last part samples arrive evenly
over some time, as from a model that generates on a GPU and needs no CPU here, so that replays can be hidden behind
generation. Medians over the repeats, with their range.

`--step`: processor seconds of a training step's verification and replays instead. Sixteen prompts with eight answers of
sixteen lines, each wrong with chance 0.16, pass through the service of the reward workers as at the start of
docs/evidence/credit_plan.md's first round, with K deletions per answer. The gate is open, and the cache shares equal
programs. Counted: this process and all that it started; the processes of a checkout share one sandbox, so run no other
beside it. Compare with the processor seconds of a plain step (`benchmarks/step_time.py`); other work makes all grow.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.sandbox_server import processor_seconds
from data_prep.micro.lines import NAMES, line_tests, random_lines, source_of, with_wrong_lines
from data_prep.micro.model import make_tokenizer
from rewards import compute_score, verifier_inputs
from rewards.counterfactual.groups import GroupBoard
from rewards.counterfactual.plan import Plan
from rewards.counterfactual.replay import Sibling, estimate
from rewards.counterfactual.service import CreditService, RolloutSample
from rewards.verifiers.code import CodeTruth

PROMPTS, ANSWERS, WRONG = 16, 8, 0.16
BUDGETS = (0, 4, 20)
TOKENIZER = make_tokenizer()
REPLAYS = (1, 2, 4, 8, 16)
LENGTHS = (4, 16, 64)
GENERATION_SECONDS = 10.0
GROUP = 8
# The first is `credit=counterfactual`'s.
KINDS = {
    "delete": Plan(("delete",)),
    "truncate": Plan(("truncate",)),
    "replace": Plan(("replace",)),
    "shapley": Plan(("shapley",)),
    "delete, truncate, replace": Plan(("delete", "truncate", "replace")),
    "delete, replace, informative": Plan(("delete", "replace"), choice="informative"),
}


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


def member(number: int) -> str:
    """One of a group's solutions of 16 statements: each writes another step differently, every second one wrongly."""
    change = "+ 1" if number % 2 else "+ 0"
    values = [f"{index} {change}" if index == number % GROUP else str(index) for index in range(14)]
    lines = [f"    a{index} = {value}" for index, value in enumerate(values)]
    return "\n".join(["def f():", *lines, f"    return {' + '.join(f'a{index}' for index in range(14))}"])


async def group(plan: Plan, number: int) -> int:
    """Estimate the credits of a group's solutions; returns the number of replays."""
    # The function's name keeps groups apart in the cache.
    texts = [member(index).replace("f()", f"f{number}()") for index in range(GROUP)]
    right = sum(range(14))

    async def score_of(text: str) -> float:
        truth = CodeTruth(tests=[f"assert f{number}() == {right}"]).model_dump_json()
        return float((await compute_score("code", text, truth))["score"])

    scores = await asyncio.gather(*map(score_of, texts))
    siblings = [Sibling(text, score) for text, score in zip(texts, scores, strict=True)]
    found = await asyncio.gather(
        *(
            estimate(text, score_of, plan, score=score, siblings=siblings)
            for text, score in zip(texts, scores, strict=True)
        )
    )
    return sum(credits.replays for credits in found)


async def groups_at_once(samples: int, plan: Plan, first: int) -> tuple[float, int]:
    """Seconds until all groups that arrive at once have their credits, and the number of replays."""
    started = time.perf_counter()
    replays = await asyncio.gather(*(group(plan, first + index) for index in range(samples // GROUP)))
    return time.perf_counter() - started, sum(replays)


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
    print(f"K = 4 by kind, groups of {GROUP}, 16 statements: seconds with verification")
    for name, plan in KINDS.items():
        counts = []

        async def of_kind(first: int, plan: Plan = plan, counts: list[int] = counts) -> float:
            seconds, replays = await groups_at_once(samples, plan, first)
            counts.append(replays)
            return seconds

        text = await medians(repeats, of_kind)
        print(f"  {name:28s} {text}   {counts[0]} replays, {counts[0] / float(text.split()[0]):.0f}/s")
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


async def one_of_step(service: CreditService, group: str, number: int, text: str, truth: str, credited: bool) -> None:
    """Verify one answer and, if `credited`, estimate its credits."""

    async def judge(changed: str) -> Mapping[str, Any]:
        return await compute_score("code", changed, truth)

    info = await service.answers.verdict(group, text, judge)
    if credited:
        ids = [*TOKENIZER.encode(text), TOKENIZER.eos_token_id]
        read = partial(verifier_inputs, "code")
        one = RolloutSample(group, number, ["code", truth], text, ids, info, reads=read)
        found = await service.credit(one, TOKENIZER, judge)
        assert (found.cause, found.unjudged) == ("", 0), found


async def processor_seconds_of_step(budget: int, seed: int) -> float:
    """Processor seconds of one step with `budget` deletions per answer; 0: verification alone."""
    rng, service = random.Random(seed), CreditService(Plan(budget=max(budget, 1)), GroupBoard(ANSWERS, 60.0))
    waiting = []
    for prompt in range(PROMPTS):
        lines = random_lines(rng, NAMES[3])
        truth = CodeTruth(tests=line_tests(lines)).model_dump_json()
        answers = [source_of(with_wrong_lines(rng, lines, WRONG)[0]) for _ in range(ANSWERS)]
        waiting += [
            one_of_step(service, f"{seed}.{prompt}", number, text, truth, budget > 0)
            for number, text in enumerate(answers)
        ]
    before = processor_seconds(os.getpid())
    await asyncio.gather(*waiting)
    return processor_seconds(os.getpid()) - before


async def measure_step(repeats: int) -> None:
    print(f"processor seconds of {PROMPTS * ANSWERS} answers: median (range)")
    await processor_seconds_of_step(0, seed=-1)  # starts the sandbox
    for budget in BUDGETS:
        seconds = [await processor_seconds_of_step(budget, repeat) for repeat in range(repeats)]
        spread = f"{statistics.median(seconds):6.2f}  ({min(seconds):.2f}-{max(seconds):.2f})"
        print(f"{f'K = {budget}' if budget else 'verification alone':20s}{spread}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--step", action="store_true", help="processor seconds of a step on sixteen lines instead")
    options = parser.parse_args()
    asyncio.run(measure_step(options.repeats) if options.step else measure(options.samples, options.repeats))


if __name__ == "__main__":
    main()
