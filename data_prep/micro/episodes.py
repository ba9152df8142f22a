"""Demonstrations of repair for the micro model.

`python -m data_prep.micro.episodes --out FILE.parquet --feedback TEMPLATE`, with the TEMPLATE that the runs use as
`agents.feedback.code_agent` (configs/agents). About half of the demonstrations are episodes of the code agent: a wrong
program, the feedback of its environment, the right program. The others are right at once. The starting model has never
seen a second turn, so it repairs nothing without these.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from data_prep.micro.problems import MicroProblem
from data_prep.micro.suite import extra_info, problems
from data_prep.schema import DataFileError, Demonstration, Message, write_rows
from data_prep.sources.agents import for_agent
from data_prep.sources.source import positive
from rewards.environments import environment_of
from rewards.settings import JudgeSettings

SKILLS = ("write", "repair")
_AT_A_TIME = 64


async def demonstration(problem: MicroProblem, index: int, rng: random.Random, feedback: str) -> Demonstration:
    """One demonstration; an episode if a wrong program is drawn and it fails a test that the agent may see."""
    asked = for_agent(problem.row(extra_info(problem, "sft_train", index)))
    turns = [problem.gold]
    if rng.random() < 0.5:
        wrong = rng.choice(problem.wrong)
        environment = environment_of(
            asked.agent_name, asked.reward_model.ground_truth, JudgeSettings(), feedback={asked.agent_name: feedback}
        )
        observation = await environment.act(wrong)
        if not observation.done:
            turns = [wrong, observation.text, problem.gold]
    replies = [Message(role="user" if turn % 2 else "assistant", content=text) for turn, text in enumerate(turns)]
    messages = [*asked.prompt, *replies]
    return Demonstration(messages=messages, skill=problem.skill, correct=True, extra_info=asked.extra_info)


async def demonstrations(count: int, seed: int, feedback: str) -> list[Demonstration]:
    """`count` demonstrations of each skill, shuffled; the same arguments give the same demonstrations."""
    drawn = [one for skill in SKILLS for one in problems(skill, "sft_train", seed=seed, count=count, difficulty=1)]
    random.Random(seed).shuffle(drawn)
    made: list[Demonstration] = []
    for start in range(0, len(drawn), _AT_A_TIME):
        batch = enumerate(drawn[start : start + _AT_A_TIME], start)
        made += await asyncio.gather(
            *(demonstration(one, index, random.Random(f"{seed}/{index}"), feedback) for index, one in batch)
        )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.micro.episodes", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="parquet file to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=positive, default=4096, help="demonstrations per skill")
    parser.add_argument("--feedback", required=True, help="template, agents.feedback.code_agent of the runs")
    options = parser.parse_args(arguments)
    try:
        count = write_rows(options.out, asyncio.run(demonstrations(options.limit, options.seed, options.feedback)))
    except (DataFileError, OSError, ValueError) as error:
        print(f"data_prep.micro.episodes: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: {count} demonstrations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
