"""Makes Countdown: `python -m data_prep.countdown --out DIR [--numbers 3 4 5 6]`. Solvable by construction."""

import random
import sys
from collections.abc import Sequence
from typing import Any

from data_prep import procedural
from data_prep.countdown_problems import countdown_fields, random_problem
from data_prep.source import run, source_parser

COUNTS = (3, 4, 5, 6)


def draw(rng: random.Random, counts: Sequence[int] = COUNTS) -> dict[str, Any]:
    """A random problem with one of these counts of numbers."""
    return countdown_fields(*random_problem(rng, rng.choice(counts))) | {"licence": "apache-2.0"}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("countdown", __doc__)
    procedural.add_limit(parser)
    parser.add_argument("--numbers", type=int, nargs="+", choices=COUNTS, default=COUNTS, help="how many, as they come")
    options = parser.parse_args(arguments)
    counts = tuple(options.numbers)
    return run(
        "countdown",
        options,
        ("countdown",),
        lambda: procedural.drafts("countdown", lambda rng: draw(rng, counts), limit=options.limit, seed=options.seed),
    )


if __name__ == "__main__":
    sys.exit(main())
