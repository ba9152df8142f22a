"""A user's reward function whose infrastructure fails for a part of the samples; it judges the others as usual."""

import zlib
from typing import Any

import rewards

FAILING_SHARE = 0.25


async def compute_score(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> dict[str, Any]:
    if zlib.crc32(solution_str.encode()) % 100 < 100 * FAILING_SHARE:
        raise ConnectionError("the judge's machine is gone")
    return await rewards.compute_score(data_source, solution_str, ground_truth, **kwargs)
