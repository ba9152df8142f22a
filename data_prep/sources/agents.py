"""Rows for agents: `python -m data_prep.sources.agents FILE.parquet --out FILE.parquet`.

The same problems, for agents that see a part of the tests and fix their answer (`rewards.environments`). Rows of other
verifiers stay as they are.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from data_prep.schema import DataFileError, Row, read_rows, write_rows
from rewards import registry
from rewards.environments import ENVIRONMENTS

# The agent that answers the rows of a verifier.
AGENTS = {verifier: name for name, environment in ENVIRONMENTS.items() for verifier in environment.verifiers}

# Fields of ground truths with tests, inputs or databases, of which an agent may see the first ones.
_JUDGED = ("tests", "cases", "databases")


def for_agent(row: Row) -> Row:
    """The row for its agent, which may see the tests that the prompt shows; if it shows none, half of all tests."""
    if row.data_source not in AGENTS:
        return row
    truth = registry.validate_ground_truth(row.data_source, row.reward_model.ground_truth)
    (judged,) = (getattr(truth, name) for name in _JUDGED if hasattr(truth, name))
    visible = getattr(truth, "visible", 0) or max(1, len(judged) // 2)
    shown = truth.model_copy(update={"visible": visible}).model_dump_json()
    reward_model = row.reward_model.model_copy(update={"ground_truth": shown})
    return row.model_copy(update={"agent_name": AGENTS[row.data_source], "reward_model": reward_model})


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.sources.agents", description=__doc__)
    parser.add_argument("file", type=Path, help="parquet file of rows")
    parser.add_argument("--out", type=Path, required=True, help="parquet file to write")
    options = parser.parse_args(arguments)
    try:
        rows = [for_agent(row) for row in read_rows(options.file)]
        if not any(row.agent_name in ENVIRONMENTS for row in rows):
            raise DataFileError(f"{options.file}: no row for an agent; agents answer {', '.join(sorted(AGENTS))}")
        count = write_rows(options.out, rows)
    except (DataFileError, OSError) as error:
        print(f"data_prep.sources.agents: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: {count} rows, {sum(row.agent_name in ENVIRONMENTS for row in rows)} of them for agents")
    return 0


if __name__ == "__main__":
    sys.exit(main())
