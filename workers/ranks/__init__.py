"""What the ranks of a process group know of each other, beside the group's own operations."""

import os
from pathlib import Path

WORDS = "keeps the others waiting"
"""In every report of a rank that hangs; the driver looks for it in the logs of processes that NCCL ended."""
RUN_FOLDER = "SKILLCREDIT_RUN"
"""Environment variable of a run's processes: its directory, which all nodes share."""


def reports_file() -> Path | None:
    """Where ranks write their reports, for a driver on another node than their logs; None outside a run."""
    folder = os.environ.get(RUN_FOLDER)
    return Path(folder, "logs", "hanging_ranks.txt") if folder else None
