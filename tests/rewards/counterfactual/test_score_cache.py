"""The cache of scores: equal programs run once, even concurrently; bounded; failures are not cached."""

import asyncio
import math

from rewards.counterfactual.judging import ScoreCache


def test_equal_programs_are_verified_once_also_at_the_same_time():
    async def body():
        cache: ScoreCache[float] = ScoreCache()
        calls = []

        async def verify():
            calls.append(1)
            await asyncio.sleep(0.01)
            return 0.5

        together = await asyncio.gather(*(cache.score(["code", "x"], verify) for _ in range(5)))
        other = await cache.score(["code", "y"], verify)
        return together, other, len(calls), cache.hits

    assert asyncio.run(body()) == ([0.5] * 5, 0.5, 2, 4)


def test_what_could_not_be_judged_is_asked_again_and_the_cache_is_bounded():
    async def body():
        cache: ScoreCache[float] = ScoreCache(size=2)
        answers = iter([math.nan, 1.0, 1.0, 1.0, 1.0])

        async def verify():
            return next(answers)

        first = await cache.score(["a"], verify)
        again = await cache.score(["a"], verify)
        for key in ("b", "c", "a"):
            await cache.score([key], verify)
        return math.isnan(first), again, cache.misses

    assert asyncio.run(body()) == (True, 1.0, 5)


def test_whoever_waits_for_an_equal_program_hears_that_its_verification_failed():
    async def body():
        cache: ScoreCache[float] = ScoreCache()

        async def verify():
            await asyncio.sleep(0.01)
            raise OSError("sandbox")

        return await asyncio.gather(*(cache.score(["a"], verify) for _ in range(2)), return_exceptions=True)

    first, second = asyncio.run(body())
    assert isinstance(first, OSError)
    assert isinstance(second, RuntimeError)
    assert "sandbox" in str(second)


def test_a_score_is_known_when_it_is_there_and_could_be_judged():
    async def body():
        cache: ScoreCache[float] = ScoreCache()
        go_on = asyncio.Event()

        async def verify():
            await go_on.wait()
            return 0.5

        async def unjudged():
            return math.nan

        pending = asyncio.create_task(cache.score(["a"], verify))
        await asyncio.sleep(0)
        before = cache.known(["a"])
        go_on.set()
        await pending
        await cache.score(["b"], unjudged)
        return before, cache.known(["a"]), cache.known(["b"]), cache.known(["c"])

    assert asyncio.run(body()) == (None, 0.5, None, None)
