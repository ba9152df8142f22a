"""The micro suite: `python -m data_prep.micro --out DIR [--seed S] [--limit N] [--difficulty D]`.

Writes train, val and test (rows for reinforcement learning) and sft_train and sft_val (demonstrations, of which a given
share is wrong) as parquet. docs/reference/micro_suite.md describes the skills.
"""

import argparse
import hashlib
import random
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console
from rich.progress import track

from data_prep.micro.lines import REDUNDANT_SHARE
from data_prep.micro.problems import ALL_SKILLS, DIFFICULTIES, SKILLS, MicroProblem
from data_prep.schema import DataFileError, Demonstration, ExtraInfo, Row, read_rows, write_rows
from data_prep.sources.agents import for_agent
from data_prep.sources.source import positive, share
from data_prep.splits import split_by_hash

# Share of wrong demonstrations: fewer where the right answer is harder to learn.
WRONG_SHARES = {"write": 0.5, "repair": 0.4, "trace": 0.4, "sql": 0.55} | dict.fromkeys(
    ("shown", "parts", "chain", "countdown"), 0.5
)

# Demonstrations of each skill, relative to the others: `repair` has the most to learn.
DEMONSTRATION_WEIGHTS = dict.fromkeys(WRONG_SHARES, 1) | {"repair": 3, "trace": 2}

# A prompt's hash alone decides its split, so no two splits share a prompt under any seed. Supervised training may see
# the prompts that reinforcement learning trains on, never those of val, test or sft_val.
_SHARES = {"val": 10, "test": 10, "sft_val": 5, "train": 75}
RL_SPLITS = ("train", "val", "test")
_POOL = {"sft_train": "train"}
_ATTEMPTS_PER_ROW = 400


def split_of(prompt: str) -> str:
    """The split to which a prompt belongs: train, val, test or sft_val."""
    return split_by_hash(prompt, _SHARES)


def problems(skill: str, split: str, *, seed: int, count: int, difficulty: int) -> Iterator[MicroProblem]:
    """Problems of one skill and split; prompts repeat in sft_train only. The same arguments give the same problems."""
    rng = random.Random(f"{skill}/{split}/{seed}/{difficulty}")
    seen: set[str] = set()
    for _ in range(count):
        for _ in range(_ATTEMPTS_PER_ROW):
            problem = ALL_SKILLS[skill](rng, difficulty)
            if split_of(problem.prompt) == _POOL.get(split, split) and problem.prompt not in seen:
                break
        else:
            raise DataFileError(
                f"skill '{skill}' has only about {len(seen)} prompts for the split '{split}' at difficulty "
                f"{difficulty}, {count} were requested; lower --limit or raise --difficulty"
            )
        if split != "sft_train":
            seen.add(problem.prompt)
        yield problem


def rows(
    split: str,
    skills: Sequence[str],
    *,
    seed: int,
    count: int,
    difficulty: int,
    agents: bool = False,
    taken: Collection[str] = (),
    impossible_share: float = 0.0,
) -> list[Row]:
    """`count` rows of every skill, shuffled, without those whose prompt is taken.

    agents: for agents that act in several turns (`rewards.environments`). impossible_share: the probability with which
    a row that shows a test is impossible.
    """
    drawn = [
        problem for skill in skills for problem in problems(skill, split, seed=seed, count=count, difficulty=difficulty)
    ]
    random.Random(f"{split}/{seed}").shuffle(drawn)
    chosen = [problem for problem in drawn if problem.prompt not in taken]
    rng = random.Random(f"impossible/{split}/{seed}")
    chosen = [problem.impossible() if rng.random() < impossible_share else problem for problem in chosen]
    made = [problem.row(extra_info(problem, split, index)) for index, problem in enumerate(chosen)]
    return [for_agent(one) for one in made] if agents else made


def demonstrations(
    split: str,
    counts: Mapping[str, int],
    wrong_shares: Mapping[str, float],
    *,
    seed: int,
    difficulty: int,
    line_wrong_share: float | None = None,
    hack_share: float = 0.0,
    easier: bool = False,
) -> list[Demonstration]:
    """`counts[skill]` demonstrations of every skill, shuffled; each wrong with its skill's probability.

    line_wrong_share: instead, for skills of named lines, the probability with which each line is wrong. hack_share: the
    probability with which a demonstration special-cases the test in its prompt, if there is one. easier: as many
    demonstrations of each lower difficulty.
    """
    levels = range(1, difficulty + 1) if easier else (difficulty,)
    rng = random.Random(f"demonstrations/{split}/{seed}")
    drawn = [
        problem.demonstration(
            *_answer(problem, rng, wrong_shares[skill], line_wrong_share, hack_share), extra_info(problem, split, 0)
        )
        for skill, count in counts.items()
        for level in levels
        for problem in problems(skill, split, seed=seed, count=count // len(levels), difficulty=level)
    ]
    rng.shuffle(drawn)
    return drawn


def _answer(
    problem: MicroProblem, rng: random.Random, wrong_share: float, line_wrong_share: float | None, hack_share: float
) -> tuple[str, bool]:
    """An answer to demonstrate, and whether it is right."""
    if problem.hack and rng.random() < hack_share:
        return problem.hack, False
    if line_wrong_share is not None and problem.with_wrong_lines is not None:
        return problem.with_wrong_lines(rng, line_wrong_share)
    correct = not problem.wrong or rng.random() >= wrong_share
    answer = problem.gold if correct else rng.choice(problem.wrong)
    if correct and problem.redundant and rng.random() < REDUNDANT_SHARE:
        answer = rng.choice(problem.redundant)
    return answer, correct


def extra_info(problem: MicroProblem, split: str, index: int) -> ExtraInfo:
    """Where the problem is from."""
    digest = hashlib.sha256(problem.prompt.encode()).hexdigest()[:12]
    return ExtraInfo(split=split, index=index, id=f"micro/{problem.skill}/{digest}")


def make(
    out: Path,
    *,
    seed: int = 0,
    limit: int = 256,
    difficulty: int = 1,
    skills: Sequence[str] = tuple(SKILLS),
    wrong_shares: Mapping[str, float] = WRONG_SHARES,
    line_wrong_share: float | None = None,
    hack_share: float = 0.0,
    impossible_share: float = 0.0,
    easier: bool = False,
    demonstration_count: int = 34_560,
    agents: bool = False,
    without: Path | None = None,
) -> dict[str, int]:
    """Write the five files into `out` and return the number of rows of each.

    limit: training rows per skill; val and test have a fifth of it. wrong_shares: by skill, in [0, 1].
    line_wrong_share, hack_share: as in `demonstrations`; easier: too, in sft_train. impossible_share: of train, as in
    `rows`. demonstration_count: total of all skills, divided by DEMONSTRATION_WEIGHTS. agents: rows for agents.
    without: folder of a suite; rows for reinforcement learning whose prompt is there are left out.

    Raises:
        DataFileError: too few prompts, or no suite in `without`.
    """
    taken = _prompts(without) if without else set()
    held_out = max(1, limit // 5)
    counts = {"train": limit, "val": held_out, "test": held_out}
    dealt = {"sft_train": deal(demonstration_count, skills), "sft_val": dict.fromkeys(skills, min(32, held_out))}
    drawn: dict[str, Callable[[], Sequence[BaseModel]]] = {}
    for split, count in counts.items():
        drawn[split] = partial(
            rows, split, skills, seed=seed, count=count, difficulty=difficulty, agents=agents, taken=taken,
            impossible_share=impossible_share if split == "train" else 0.0,
        )  # fmt: skip
    for split, skill_counts in dealt.items():
        drawn[split] = partial(
            demonstrations, split, skill_counts, wrong_shares, seed=seed, difficulty=difficulty,
            line_wrong_share=line_wrong_share, hack_share=hack_share, easier=easier and split == "sft_train",
        )  # fmt: skip
    steps = track(drawn.items(), "making the micro suite", console=Console(stderr=True))
    return {split: write_rows(out / f"{split}.parquet", draw()) for split, draw in steps}


def _prompts(suite: Path) -> set[str]:
    """The prompts for reinforcement learning of a suite."""
    return {row.prompt[0].content for split in RL_SPLITS for row in read_rows(suite / f"{split}.parquet")}


def deal(total: int, skills: Sequence[str]) -> dict[str, int]:
    """The number of demonstrations per skill, at least one each, about `total` in sum."""
    weights = sum(DEMONSTRATION_WEIGHTS[skill] for skill in skills)
    return {skill: max(1, total * DEMONSTRATION_WEIGHTS[skill] // weights) for skill in skills}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.micro", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the parquet files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=positive, default=256, help="training rows per skill")
    parser.add_argument("--difficulty", type=int, default=1, choices=DIFFICULTIES)
    parser.add_argument("--skills", nargs="+", default=list(SKILLS), choices=list(ALL_SKILLS), metavar="SKILL")
    parser.add_argument("--wrong-share", type=share, help=f"share of wrong demonstrations (default: {WRONG_SHARES})")
    parser.add_argument(
        "--line-wrong-share",
        type=share,
        help="instead, for parts and chain: the probability with which each line of a demonstration is wrong",
    )
    parser.add_argument(
        "--hack-share", type=share, default=0.0, help="share of demonstrations that special-case (shown)"
    )
    parser.add_argument("--impossible-share", type=share, default=0.0, help="share of impossible rows in train (shown)")
    parser.add_argument("--easier", action="store_true", help="as many demonstrations of each lower difficulty")
    parser.add_argument("--demonstrations", type=positive, default=34_560, help="total of all skills")
    parser.add_argument("--agents", action="store_true", help="rows for agents (docs/reference/agents.md)")
    parser.add_argument("--without", type=Path, metavar="DIR", help="leave out rows whose prompts the suite in DIR has")
    options = parser.parse_args(arguments)
    if options.hack_share + options.impossible_share > 0 and "shown" not in options.skills:
        parser.error("--hack-share and --impossible-share need a test in the prompt: add the skill 'shown' to --skills")
    wrong = options.wrong_share
    try:
        sizes = make(
            options.out,
            seed=options.seed,
            limit=options.limit,
            difficulty=options.difficulty,
            skills=options.skills,
            wrong_shares=WRONG_SHARES if wrong is None else dict.fromkeys(ALL_SKILLS, wrong),
            line_wrong_share=options.line_wrong_share,
            hack_share=options.hack_share,
            impossible_share=options.impossible_share,
            easier=options.easier,
            demonstration_count=options.demonstrations,
            agents=options.agents,
            without=options.without,
        )
    except (DataFileError, OSError) as error:
        print(f"data_prep.micro.suite: {error}", file=sys.stderr)
        return 1
    print("\n".join(f"{options.out / split}.parquet: {size} rows" for split, size in sizes.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
