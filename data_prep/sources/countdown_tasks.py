"""Countdown-Tasks-3to4: `python -m data_prep.sources.countdown_tasks --out DIR`.

The published set has one split. As in TinyZero, its first 327,680 records are for training, the next 1,024 are for
testing, and the rest is not used. The last 1,024 for training are held out as dev, for validation. The set has no
solutions, so they are searched for; a problem without one is refused.
"""

import sys
from collections.abc import Sequence
from typing import Any

from data_prep.sources import hub
from data_prep.sources.countdown import countdown_fields, solve
from data_prep.sources.hub import PublicSet
from data_prep.sources.source import source_parser

PUBLIC = PublicSet(
    "countdown34",
    "Jiayi-Pan/Countdown-Tasks-3to4",
    None,
    ("train",),
    ("target", "nums"),
    "408f70d177020686d34a56bba5952feb45aaaee4",
    "none given",
)
_PARTS = {"train": range(326_656), "dev": range(326_656, 327_680), "test": range(327_680, 328_704)}


def parts(split: str, records: Sequence[Any]) -> dict[str, range]:
    """The record numbers of train, dev and test that exist."""
    return {
        part: range(min(numbers.start, len(records)), min(numbers.stop, len(records)))
        for part, numbers in _PARTS.items()
    }


def convert(record: dict[str, Any], split: str, index: int) -> dict[str, Any]:
    """The task of a record."""
    numbers, target = [int(number) for number in record["nums"]], int(record["target"])
    solution = solve(numbers, target)
    if solution is None:
        raise ValueError("no expression has this value")
    return countdown_fields(numbers, target, solution) | {
        "id": f"countdown34/{index}",
        "source": "countdown34",
        "split": split,
        "role": split,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("countdown_tasks", __doc__)
    hub.add_options(parser, PUBLIC.splits)
    options = parser.parse_args(arguments)
    return hub.make(PUBLIC, options, convert, "countdown", module="countdown_tasks", parts=parts)


if __name__ == "__main__":
    sys.exit(main())
