"""Makes Countdown-Tasks-3to4: `python -m data_prep.countdown_tasks --out DIR`.

The published set has one split; as in TinyZero its first 327,680 records are train, the next 1,024 test, and the rest
is left out. Solutions are searched for here; a problem without one is refused.
"""

import sys
from collections.abc import Sequence
from typing import Any

from data_prep import hub
from data_prep.countdown_problems import countdown_fields, solve
from data_prep.hub import PublicSet
from data_prep.source import run, source_parser

PUBLIC = PublicSet("countdown34", "Jiayi-Pan/Countdown-Tasks-3to4", None, ("train",), ("target", "nums"))
_TRAIN, _TEST = 327_680, 1_024


def convert(record: dict[str, Any], split: str, index: int) -> dict[str, Any]:
    """The task of a record."""
    if index >= _TRAIN + _TEST:
        raise ValueError("neither of train nor of test")
    numbers, target = [int(number) for number in record["nums"]], int(record["target"])
    solution = solve(numbers, target)
    if solution is None:
        raise ValueError("no expression has this value")
    role = "train" if index < _TRAIN else "test"
    return countdown_fields(numbers, target, solution) | {
        "id": f"countdown34/{index}",
        "source": "countdown34",
        "split": role,
        "role": role,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("countdown_tasks", __doc__)
    hub.add_options(parser, PUBLIC.splits)
    options = parser.parse_args(arguments)
    return run("countdown_tasks", options, ("countdown",), lambda: hub.drafts(PUBLIC, options, convert))


if __name__ == "__main__":
    sys.exit(main())
