"""Scores answers with the scorers that verl ships, in a separate program: some of them execute what they score.

Reads one JSON line [data source, answer, ground truth] per answer and writes one JSON line [score, seconds] for each.
What the scorers print goes to standard error. Only they are imported: the rest of verl takes seconds, and makes
the processes that some of them start slow.
"""

import json
import os
import sys
import time
import types
from importlib.util import find_spec
from pathlib import Path


def import_scorers_only() -> None:
    """Make `verl` and `verl.utils` packages whose own `__init__` does not run."""
    spec = find_spec("verl")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    for name, place in (("verl", folder), ("verl.utils", folder / "utils")):
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [str(place)]


def score(source: str, answer: str, truth: str) -> float:
    """The score of one answer."""
    from verl.utils.reward_score import default_compute_score

    found = default_compute_score(source, answer, truth)
    return float(found["score"] if isinstance(found, dict) else found)


if __name__ == "__main__":
    import_scorers_only()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        started = time.perf_counter()
        found = score(*json.loads(line))
        print(json.dumps([found, time.perf_counter() - started]), file=replies, flush=True)
