"""Validation of a task file: `python -m data_prep.validate FILE`.

Prints the line number and the reason of each bad row, then a summary; the exit status is 1 if there is a bad row or no
good one. docs/reference/data.md documents the format.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from data_prep.schema import DataFileError
from data_prep.tasks import checked_tasks


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.validate", description=__doc__)
    parser.add_argument("file", type=Path, help="tasks as JSON Lines")
    path = parser.parse_args(arguments).file
    good: Counter[str] = Counter()
    bad = 0
    try:
        for number, found in checked_tasks(path):
            if isinstance(found, str):
                bad += 1
                print(f"{path}:{number}: {found}")
            else:
                good[found.role] += 1
    except (DataFileError, OSError) as error:
        print(f"data_prep.validate: {error}", file=sys.stderr)
        return 1
    roles = ", ".join(f"{count} {role}" for role, count in sorted(good.items())) or "none"
    print(f"{path}: {good.total()} good tasks ({roles}), {bad} bad rows")
    return 1 if bad or not good else 0


if __name__ == "__main__":
    sys.exit(main())
