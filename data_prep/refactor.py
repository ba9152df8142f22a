"""Makes refactoring tasks: `python -m data_prep.refactor --out DIR [--levels 1 2 3]`.

The prompt shows a working program with needless complexity; the answer does the same in at most half of its statements.
Hidden tests tell the program from every one that differs in one comparison, operator, number or in what it returns.
"""

import random
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from data_prep import procedural
from data_prep.refactor_programs import random_pipeline
from data_prep.source import run, source_parser
from rewards.refactor import RefactorTruth, statements

# The number of steps of the program; each is a loop in the prompt.
LEVELS = (1, 2, 3)


def draw(rng: random.Random, levels: Sequence[int] = LEVELS) -> dict[str, Any]:
    """A random problem of one of these levels."""
    level = rng.choice(levels)
    pipeline, lists = random_pipeline(rng, level)
    original = pipeline.needless(rng)
    most = statements(original) // 2
    truth = RefactorTruth(
        tests=[f"assert f({values}) == {pipeline.returns(values)}" for values in lists],
        original=original,
        max_statements=most,
    )
    return {
        "skill": "refactor",
        "verifier": "refactor",
        "prompt": (
            f"This program works, but it is needlessly complicated:\n```python\n{original}\n```\nWrite it again so "
            f"that it does the same in at most {most} statements (`def` and `return` count), one on a line. Answer "
            "with the whole program in one Python code block."
        ),
        "ground_truth": truth.model_dump(),
        "solution": pipeline.plain(),
        "licence": "apache-2.0",
        "notes": {"level": level},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("refactor", __doc__)
    procedural.add_limit(parser)
    parser.add_argument("--levels", type=int, nargs="+", choices=LEVELS, default=LEVELS)
    options = parser.parse_args(arguments)
    one = partial(draw, levels=tuple(options.levels))
    return run(
        "refactor",
        options,
        ("refactor",),
        # One function is written badly in many ways: all of them belong to one split.
        lambda: procedural.drafts("refactor", one, limit=options.limit, seed=options.seed, split_by="solution"),
    )


if __name__ == "__main__":
    sys.exit(main())
