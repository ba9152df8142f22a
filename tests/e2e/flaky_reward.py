"""A user's reward function whose infrastructure fails for a part of the samples; it judges the others as usual."""

import zlib
from typing import Any

import rewards

FAILING_SHARE = 0.25


def fails_on(answer: str) -> bool:
    """Whether the judge is gone for this answer."""
    return zlib.crc32(answer.encode()) % 100 < 100 * FAILING_SHARE


async def compute_score(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> dict[str, Any]:
    if fails_on(solution_str):
        raise ConnectionError("the judge's machine is gone")
    return await rewards.compute_score(data_source, solution_str, ground_truth, **kwargs)
