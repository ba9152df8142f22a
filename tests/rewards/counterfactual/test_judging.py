"""Verdicts on equal answers, and time limits for the replays of an answer."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.counterfactual.judging import Answers, limit_after


@given(st.floats(0, 100))
def test_the_limit_of_replays_is_a_small_multiple_of_the_answers_time(seconds):
    assert max(0.5, 4 * seconds) <= limit_after(seconds) <= max(0.5, 8 * seconds)


def _wrong(error: str = "wrong_answer") -> dict[str, float | str]:
    return {"score": 0.0, "pass_ratio": 0.0, "error": error, "busy_seconds": 1.0, "judge_seconds": 2.0}


async def test_a_copy_of_a_verdict_takes_no_time_and_one_that_hit_a_limit_is_judged_again():
    calls = Counter[str]()

    async def judge(answer: str) -> dict[str, float | str]:
        calls[answer] += 1
        return _wrong("timeout" if answer == "slow" else "wrong_answer")

    answers = Answers()
    verdicts = [await answers.verdict("g", "wrong", judge) for _ in range(3)]
    assert [(one["busy_seconds"], one["judge_seconds"]) for one in verdicts] == [(1.0, 2.0), (0.0, 0.0), (0.0, 0.0)]
    for _ in range(3):
        await answers.verdict("g", "slow", judge)
    assert calls == {"wrong": 1, "slow": 3}


async def test_equal_answers_of_one_whose_judge_was_cancelled_are_judged_themselves():
    asked = 0

    async def judge(answer: str) -> dict[str, float | str]:
        nonlocal asked
        asked += 1
        if asked == 1:
            await asyncio.sleep(60)
        return _wrong()

    answers = Answers()
    first = asyncio.create_task(answers.verdict("g", "x", judge))
    await asyncio.sleep(0)
    second = asyncio.create_task(answers.verdict("g", "x", judge))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second)["error"] == "wrong_answer"
    with pytest.raises(asyncio.CancelledError):
        await first
