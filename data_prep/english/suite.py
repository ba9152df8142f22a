"""The English suite: `python -m data_prep.english --out DIR [--seed S] [--limit N] [--levels 1 2 [word=1 ...]]`.

Five skills (write, repair, trace, sql, word) as a person would ask an instruct model for them; `--skills ledger` is a
sixth, word problems whose program returns the quantity after each event, with a test for each. Writes train, val and
test (rows for reinforcement learning), sft_train and sft_val (demonstrations: the reference answers, or for
`--wrong-share` of them a misreading), and manifest.json. No problem is in two files, whatever seed and wording; no
function that `write`, `repair` or `trace` is about, either.
"""

import argparse
import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.progress import track

from data_prep.english.asking import ledger_problem, sql_problem, word_problem
from data_prep.english.coding import repair_problem, trace_problem, write_problem
from data_prep.english.problem import Accept, EnglishProblem, Unsuitable
from data_prep.files import complete_file, file_hash
from data_prep.made_from import key, sources
from data_prep.schema import DataFileError, Demonstration, ExtraInfo, Row, write_rows
from data_prep.sources.source import positive, share
from data_prep.sources.sql import Ambiguous
from data_prep.splits import split_by_hash

EnglishMaker = Callable[[random.Random, int, Accept], EnglishProblem]
SKILLS: dict[str, EnglishMaker] = {
    "write": write_problem,
    "repair": repair_problem,
    "trace": trace_problem,
    "sql": sql_problem,
    "word": word_problem,
    "ledger": ledger_problem,
}
STANDARD = tuple(skill for skill in SKILLS if skill != "ledger")
"""The skills of a suite for which none are named."""
LEVELS = (1, 2, 3)
Levels = Mapping[str, Sequence[int]]
USUAL = (1, 2)
DEFAULT_LEVELS: Levels = dict.fromkeys(STANDARD, USUAL)

# A problem's origin alone decides its split.
_SHARES = {"val": 10, "test": 10, "sft_val": 4, "sft_train": 38, "train": 38}
_ATTEMPTS_PER_ROW = 4000

MANIFEST = "manifest.json"


def split_of(origin: str) -> str:
    """The split to which the problems of this origin belong."""
    return split_by_hash(origin, _SHARES)


def problems(skill: str, split: str, *, seed: int, count: int, levels: Sequence[int]) -> Iterator[EnglishProblem]:
    """Distinct problems of one skill and split, of random levels; the same arguments give the same problems."""
    rng = random.Random(f"{skill}/{split}/{seed}/{','.join(map(str, levels))}")
    seen: set[str] = set()

    def accept(origin: str, key: str) -> bool:
        return key not in seen and split_of(origin) == split

    for _ in range(count):
        for _ in range(_ATTEMPTS_PER_ROW):
            problem = _draw(rng, skill, levels, accept)
            if problem is not None:
                break
        else:
            raise DataFileError(
                f"skill '{skill}' has only about {len(seen)} problems for the split '{split}' at the levels "
                f"{', '.join(map(str, levels))}, {count} were requested; lower the number or add a level"
            )
        seen.add(problem.key)
        yield problem


def _draw(rng: random.Random, skill: str, levels: Sequence[int], accept: Accept) -> EnglishProblem | None:
    """A problem whose ground truth distinguishes it from all wrong answers, or None."""
    try:
        problem = SKILLS[skill](rng, rng.choice(levels), accept)
        problem.truth()
    except (Unsuitable, Ambiguous):
        return None
    return problem


def rows(split: str, levels: Levels, *, seed: int, count: int) -> list[Row]:
    """`count` rows of every skill, shuffled."""
    drawn = _shuffled(split, levels, seed, count)
    return [problem.row(extra_info(problem, split, index)) for index, problem in enumerate(drawn)]


def demonstrations(
    split: str, levels: Levels, *, seed: int, count: int, wrong_share: float = 0.0
) -> list[Demonstration]:
    """`count` problems of every skill with an answer each, shuffled; each wrong with probability `wrong_share`.

    A right answer is the reference; a wrong one reads the problem wrongly in one place.
    """
    rng = random.Random(f"wrong/{split}/{seed}")
    return [
        one.demonstration(*_answer(one, rng, wrong_share), extra_info(one, split, index))
        for index, one in enumerate(_shuffled(split, levels, seed, count))
    ]


def _answer(problem: EnglishProblem, rng: random.Random, wrong_share: float) -> tuple[str, bool]:
    """An answer to demonstrate, and whether it is right."""
    correct = rng.random() >= wrong_share
    return (problem.gold if correct else rng.choice(problem.wrong)), correct


def _shuffled(split: str, levels: Levels, seed: int, count: int) -> list[EnglishProblem]:
    drawn = [
        one
        for skill, allowed in levels.items()
        for one in problems(skill, split, seed=seed, count=count, levels=allowed)
    ]
    random.Random(f"{split}/{seed}").shuffle(drawn)
    return drawn


def extra_info(problem: EnglishProblem, split: str, index: int) -> ExtraInfo:
    """Where the problem is from."""
    digest = hashlib.sha256(problem.key.encode()).hexdigest()[:12]
    facts = {"split": split, "index": index, "id": f"english/{problem.skill}/{digest}", "level": problem.level}
    return ExtraInfo.model_validate(facts)


def make(
    out: Path,
    *,
    seed: int = 0,
    limit: int = 1024,
    demonstration_count: int = 1024,
    wrong_share: float = 0.0,
    levels: Levels = DEFAULT_LEVELS,
) -> dict[str, int]:
    """Write the five files and the manifest into `out` and return the number of rows of each file.

    limit: training rows per skill; val and test have an eighth of it. demonstration_count: per skill; sft_val has a
    sixteenth of it. wrong_share: of the demonstrations. levels: by skill, the skills that are wanted.
    """
    counts = {"train": limit, "val": max(1, limit // 8), "test": max(1, limit // 8)}
    shown = {"sft_train": demonstration_count, "sft_val": max(1, demonstration_count // 16)}
    sizes: dict[str, int] = {}
    dealt: dict[str, dict[str, int]] = {}
    for split in track([*counts, *shown], "making the English suite", console=Console(stderr=True)):
        drawn: Sequence[BaseModel]
        if split in counts:
            drawn = rows(split, levels, seed=seed, count=counts[split])
        else:
            drawn = demonstrations(split, levels, seed=seed, count=shown[split], wrong_share=wrong_share)
        sizes[split] = write_rows(out / f"{split}.parquet", drawn)
        dealt[split] = dict(sorted(Counter(f"{one.skill}/{one.extra_info.level}" for one in drawn).items()))  # type: ignore[attr-defined]
    settings = {
        "seed": seed,
        "limit": limit,
        "demonstrations": demonstration_count,
        "wrong_share": wrong_share,
        "levels": dict(levels),
    }
    write_manifest(out, settings, sizes, dealt)
    return sizes


def write_manifest(
    out: Path, settings: Mapping[str, Any], sizes: Mapping[str, int], dealt: Mapping[str, Mapping[str, int]]
) -> None:
    """Write manifest.json into `out`. sizes: rows by file. dealt: for each file, rows by skill and level."""
    command = ["data_prep.english", json.dumps(settings, sort_keys=True)]
    record = {
        "suite": "english",
        "settings": settings,
        "made_from": key(command, sources(["data_prep.english.__main__"])),
        "files": {
            split: {"rows": size, "sha256": file_hash(out / f"{split}.parquet"), "problems": dealt[split]}
            for split, size in sizes.items()
        },
    }
    with complete_file(out / MANIFEST) as path:
        path.write_text(json.dumps(record, indent=2) + "\n")


def parse_levels(texts: Iterable[str], skills: Sequence[str]) -> Levels:
    """Levels by skill, of texts such as `1`, `2` (for all skills) and `word=1,3`; ValueError for any other."""
    common: list[int] = []
    special: dict[str, tuple[int, ...]] = {}
    for text in texts:
        skill, given, numbers = text.rpartition("=")
        try:
            found = tuple(int(number) for number in numbers.split(","))
        except ValueError:
            found = (0,)
        if not set(found) <= set(LEVELS) or (given and skill not in skills):
            raise ValueError(
                f"--levels {text}: give levels 1, 2 or 3, or SKILL=LEVEL,... with one of {', '.join(skills)}"
            )
        if given:
            special[skill] = found
        else:
            common += found
    return {skill: special.get(skill, tuple(common) or USUAL) for skill in skills}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.english", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the parquet files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=positive, default=1024, help="training rows per skill")
    parser.add_argument("--demonstrations", type=positive, default=1024, help="per skill")
    parser.add_argument("--wrong-share", type=share, default=0.0, help="of demonstrations with a wrong answer, 0 to 1")
    parser.add_argument("--skills", nargs="+", default=list(STANDARD), choices=list(SKILLS), metavar="SKILL")
    parser.add_argument("--levels", nargs="+", default=[], help="1, 2, 3, or SKILL=LEVEL,... (default: 1 2)")
    options = parser.parse_args(arguments)
    try:
        sizes = make(
            options.out,
            seed=options.seed,
            limit=options.limit,
            demonstration_count=options.demonstrations,
            wrong_share=options.wrong_share,
            levels=parse_levels(options.levels, options.skills),
        )
    except (ValueError, OSError) as error:
        print(f"data_prep.english: {error}", file=sys.stderr)
        return 1
    print("\n".join(f"{options.out / split}.parquet: {size} rows" for split, size in sizes.items()))
    return 0
