"""Makes graph tasks with exact optima: `python -m data_prep.graphs --out DIR [--tasks mcp tsp ...] [--levels 1 2 ...]`.

Every task and level gets the same number of problems. With one seed a smaller --limit makes a subset of a larger one.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from data_prep import procedural
from data_prep.graph_problems import NETWORK_SIZES, TASKS
from data_prep.source import Draft, run, source_parser

LEVELS = tuple(NETWORK_SIZES)
_FORM = "Answer with one list of names in square brackets, separated by commas."


def draw(name: str, level: int, rng: random.Random) -> dict[str, Any]:
    """The fields of a random problem of a task and level."""
    problem = TASKS[name](rng, level)
    return {
        "skill": name,
        "verifier": name,
        "prompt": f"{problem.text} {_FORM}",
        "ground_truth": problem.truth,
        "solution": f"[{', '.join(problem.answer)}]",
        "licence": "apache-2.0",
        "notes": {"level": level},
    }


def drafts(tasks: Sequence[str], levels: Sequence[int], *, limit: int, seed: int) -> Iterator[Draft]:
    """About `limit` training problems, equally many of every task and level, and a tenth of that of dev and of test."""
    each = max(1, limit // (len(tasks) * len(levels)))
    for name in tasks:
        for level in levels:
            one = partial(draw, name, level)
            for draft in procedural.drafts(f"graphs/{name}/{level}", one, limit=each, seed=seed):
                yield draft | {"source": "graphs"}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("graphs", __doc__)
    procedural.add_limit(parser)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--levels", type=int, nargs="+", choices=LEVELS, default=LEVELS)
    options = parser.parse_args(arguments)
    tasks, levels = tuple(options.tasks), tuple(options.levels)
    made = partial(drafts, tasks, levels, limit=options.limit, seed=options.seed)
    return run("graphs", options.out, tasks, made)


if __name__ == "__main__":
    sys.exit(main())
