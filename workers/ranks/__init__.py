"""What the ranks of a process group know of each other, beside the group's own operations."""

WORDS = "keeps the others waiting"
"""In every report of a rank that hangs; the driver looks for it in the logs of processes that NCCL ended."""
