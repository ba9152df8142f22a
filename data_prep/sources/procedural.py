"""Shared parts of procedural sources: distinct problems, assigned to train, dev and test by a hash."""

import argparse
import hashlib
import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from data_prep.schema import DataFileError
from data_prep.sources.source import positive
from data_prep.splits import split_by_hash
from data_prep.tasks import TaskPart

_SHARES = {"train": 80, "dev": 10, "test": 10}
_ATTEMPTS = 2_000

# The fields of a task (data_prep/tasks.py).
Fields = dict[str, Any]


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add the option for the number of problems."""
    parser.add_argument("--limit", type=positive, default=1_000, help="training problems; dev and test have a tenth")


def drafts(
    source: str,
    draw: Callable[[random.Random], dict[str, Any]],
    *,
    limit: int,
    seed: int,
    split_by: TaskPart = "prompt",
) -> Iterator[dict[str, Any]]:
    """`limit` problems for train and a tenth of that for dev and for test each, no two with the same prompt.

    draw: makes the fields of a random task, without id, source, split and role. split_by: the field that no two splits
    share, for problems that can be phrased in many ways. Raises DataFileError if there are too few problems.
    """
    rng = random.Random(f"{source}/{seed}")
    return deal(source, (draw(rng) for _ in count()), limit=limit, split_by=split_by)


def size(limit: int) -> int:
    """The number of problems that `deal` makes in all splits."""
    return limit + 2 * _held_out(limit)


def _held_out(limit: int) -> int:
    return max(1, limit // 10)


def deal(
    source: str, problems: Iterator[dict[str, Any]], *, limit: int, split_by: TaskPart = "prompt"
) -> Iterator[dict[str, Any]]:
    """Like `drafts`, from an endless sequence of problems, of which it takes only as many as it needs."""
    wanted = {"train": limit, "dev": _held_out(limit), "test": _held_out(limit)}
    seen: set[str] = set()
    failures = 0
    while any(wanted.values()):
        fields = next(problems)
        prompt = fields["prompt"]
        split = split_by_hash(fields[split_by], _SHARES)
        if prompt in seen or not wanted[split]:
            failures += 1
            if failures == _ATTEMPTS:
                raise DataFileError(f"{source} has only about {len(seen)} problems; lower --limit ({limit})")
            continue
        failures = 0
        seen.add(prompt)
        wanted[split] -= 1
        digest = hashlib.sha256(prompt.encode()).hexdigest()[:12]
        yield fields | {"id": f"{source}/{digest}", "source": source, "split": split, "role": split}
