"""Processor seconds of a training step's verification and replays, for programs of sixteen lines with a test each.

    python benchmarks/credit_step.py [--repeats 3]

Sixteen prompts with eight answers, each line wrong with chance 0.12, pass through the service of the reward workers and
the real sandbox, as in `experiment=credit_parts16` at its start: verification alone, and with K deletions per answer.
The gate is open, and the cache shares equal programs. Counted: this process and all that it started; the processes of a
checkout share one sandbox, so run no other beside it. Compare with the processor seconds of a plain step
(`benchmarks/step_time.py`); on a machine with other work all of them grow.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.step_time import processor_seconds  # noqa: E402
from data_prep.micro.lines import NAMES, line_tests, random_lines, source_of, with_wrong_lines  # noqa: E402
from data_prep.micro.model import make_tokenizer  # noqa: E402
from rewards import compute_score, what_is_read  # noqa: E402
from rewards.counterfactual.groups import GroupBoard  # noqa: E402
from rewards.counterfactual.plan import Plan  # noqa: E402
from rewards.counterfactual.service import CreditService, RolloutSample  # noqa: E402
from rewards.verifiers.code import CodeTruth  # noqa: E402

PROMPTS, ANSWERS, WRONG = 16, 8, 0.12
BUDGETS = (0, 4, 20)
TOKENIZER = make_tokenizer()


async def sample(service: CreditService, group: str, number: int, text: str, truth: str, credited: bool) -> None:
    """Verify one answer and, if asked for, estimate its credits."""

    async def judge(changed: str) -> Mapping[str, Any]:
        return await compute_score("code", changed, truth)

    info = await service.answers.verdict(group, text, judge)
    if credited:
        ids = [*TOKENIZER.encode(text), TOKENIZER.eos_token_id]
        read = partial(what_is_read, "code")
        one = RolloutSample(group, number, ["code", truth], text, ids, info, reads=read)
        found = await service.credit(one, TOKENIZER, judge)
        assert (found["credit_cause"], found["credit_unjudged"]) == ("", 0), found


async def step(budget: int, seed: int) -> float:
    """Processor seconds of one step with `budget` deletions per answer; 0: verification alone."""
    rng, service = random.Random(seed), CreditService(Plan(budget=max(budget, 1)), GroupBoard(ANSWERS, 60.0))
    waiting = []
    for prompt in range(PROMPTS):
        lines = random_lines(rng, NAMES[3])
        truth = CodeTruth(tests=line_tests(lines)).model_dump_json()
        answers = [source_of(with_wrong_lines(rng, lines, WRONG)[0]) for _ in range(ANSWERS)]
        waiting += [
            sample(service, f"{seed}.{prompt}", number, text, truth, budget > 0) for number, text in enumerate(answers)
        ]
    before = processor_seconds(os.getpid())
    await asyncio.gather(*waiting)
    return processor_seconds(os.getpid()) - before


async def measure(repeats: int) -> None:
    await step(0, seed=-1)  # starts the sandbox
    for budget in BUDGETS:
        seconds = [await step(budget, repeat) for repeat in range(repeats)]
        spread = f"{statistics.median(seconds):6.2f}  ({min(seconds):.2f}-{max(seconds):.2f})"
        print(f"{f'K = {budget}' if budget else 'verification alone':20s}{spread}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    print(f"processor seconds of {PROMPTS * ANSWERS} answers: median (range)")
    asyncio.run(measure(parser.parse_args().repeats))


if __name__ == "__main__":
    main()
