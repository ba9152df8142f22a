"""Scores answers with the scorers that verl ships, in the order given: `python stock_scorer.py < jobs.json`.

A separate program, as some of these scorers execute what they score. Reads a list of [data source, answer, ground
truth] and prints their scores as a JSON list on the last line.
"""

import json
import sys

from verl.utils.reward_score import default_compute_score


def score(source: str, answer: str, truth: str) -> float:
    """The score of one answer."""
    found = default_compute_score(source, answer, truth)
    return float(found["score"] if isinstance(found, dict) else found)


if __name__ == "__main__":
    print("\n" + json.dumps([score(*job) for job in json.load(sys.stdin)]))
