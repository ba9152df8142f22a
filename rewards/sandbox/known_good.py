"""A program that passes wherever the sandbox works: where it does, a failure beside it is not the sandbox's."""

from __future__ import annotations

from typing import Any

KNOWN_GOOD: dict[str, Any] = {
    "code": "def double(x):\n    return 2 * x\n", "language": "python", "files": {}, "timeout": 2.0,
    "compile_timeout": 0.1, "memory_mb": 256, "output_limit": 1 << 16, "setup": "", "max_timeouts": 1,
    "stop_on_failure": False, "total_timeout": 3.0, "entry_points": [],
    "cases": [{"source": "assert double(2) == 4"}, {"source": "value = double(3)\nassert value == 6"}],
}  # fmt: skip
"""A job, with one case that the worker compares and one that a judge runs."""
