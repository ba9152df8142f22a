"""Judging of answers and replays in a reward worker: time limits for replays, and a cache of scores by content."""

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from rewards.counterfactual.replayer import ExecutedProgram, Outcome
from rewards.sandbox.client.accounting import counted, covering

Value = TypeVar("Value")


class ScoreCache(Generic[Value]):
    """Scores of programs by content: equal programs are verified once, even while the first is still running.

    size: entries kept; the least recently used one is evicted first. judged: whether a value is kept; a program that
    could not be judged is verified again.
    """

    def __init__(self, size: int = 65_536, judged: Callable[[Any], bool] = math.isfinite):
        self.size = size
        self.judged = judged
        self.hits = self.misses = 0
        self._scores: OrderedDict[bytes, asyncio.Future[Value]] = OrderedDict()

    @staticmethod
    def _digest(key: Sequence[str]) -> bytes:
        return hashlib.sha256("\0".join(key).encode(errors="surrogatepass")).digest()

    def __contains__(self, key: Sequence[str]) -> bool:
        return self._digest(key) in self._scores

    def known(self, key: Sequence[str]) -> Value | None:
        """The score under this key; None if it was not requested, is pending, or failed."""
        score = self._scores.get(self._digest(key))
        return score.result() if score is not None and score.done() and not score.exception() else None

    async def score(self, key: Sequence[str], verify: Callable[[], Awaitable[Value]]) -> Value:
        """The score under this key; calls `verify` if it is not known.

        Raises what `verify` raises, and RuntimeError if a pending verification of an equal program raised.
        """
        digest = self._digest(key)
        known = self._scores.get(digest)
        if known is not None:
            self.hits += 1
            self._scores.move_to_end(digest)
            return await asyncio.shield(known)
        self.misses += 1
        pending: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._scores[digest] = pending
        try:
            value = await verify()
        except BaseException as error:
            self._scores.pop(digest, None)
            pending.set_exception(RuntimeError(f"the verification of an equal program failed: {error!r}"))
            pending.exception()  # marks it as retrieved: asyncio warns otherwise if no caller waits
            raise
        pending.set_result(value)
        if not self.judged(value):
            self._scores.pop(digest, None)
        while len(self._scores) > self.size:
            self._scores.popitem(last=False)
        return value


# Verdicts on answers that are kept: the answers of a group arrive close together, so few suffice.
_ANSWERS = 4096

# Times of a verdict, which a copy of it does not take again.
_SECONDS = ("busy_seconds", "judge_seconds")

# Time limit of a replay: this multiple of the time of the answer itself, and at least this many seconds.
_TIMES_OWN = 4.0
_LEAST_SECONDS = 0.5

# The result of compute_score for an answer, or a changed one, to the same problem.
AnswerScorer = Callable[[str], Awaitable[Mapping[str, Any]]]


def reward_of(info: Mapping[str, Any]) -> float:
    """R in [0, 1], the unit of credits: the share of tests passed if the verifier reports it, else the score.

    NaN if verification failed.
    """
    if info.get("error") == "infrastructure":
        return math.nan
    return float(info["pass_ratio"] if "pass_ratio" in info else info["score"])


@dataclass(frozen=True)
class Judged:
    """One judgement: the verdict, the seconds of sandbox workers that it took, the runs that hit their time limit.

    tests: which tests passed, for a verdict whose R is their share; else unknown. executed: the statements that they
    executed, where that was measured and R is their share.
    """

    info: Mapping[str, Any]
    seconds: float
    timeouts: int
    tests: tuple[bool, ...] = ()
    executed: ExecutedProgram | None = None

    @property
    def outcome(self) -> Outcome:
        return Outcome(reward_of(self.info), self.tests, self.executed)


async def judged(judge: AnswerScorer, answer: str, *, measured: bool = False) -> Judged:
    """The judgement of one answer, with the statements executed if `measured`; raises what the judge raises."""
    with counted() as busy, covering() if measured else nullcontext():
        info = await judge(answer)
    # A verdict's error names only the first failure, and a driver may stop a slow run before the sandbox does.
    timeouts = max(busy.timeouts, int(info.get("error") == "timeout"))
    passed = tuple(busy.passed)
    tests = passed if passed and math.isclose(sum(passed) / len(passed), reward_of(info), abs_tol=1e-9) else ()
    checks = busy.executed if tests and not timeouts else []
    known = [ExecutedProgram(code, statements) for code, statements in checks if statements is not None]
    executed = known[0] if len(known) == len(checks) == 1 else None
    return Judged(info, float(info.get("busy_seconds", busy.seconds)), timeouts, tests, executed)


def limit_after(seconds: float) -> float:
    """Time limit, in seconds, of each run of a replay, given the sandbox worker seconds of the answer itself.

    Rounded up to a power of two times the minimum, so that equal programs of answers with similar times share a key.
    """
    limit = _LEAST_SECONDS
    while limit < _TIMES_OWN * seconds:
        limit *= 2
    return limit


class Answers:
    """Judgements of the samples' own answers; equal answers of a group are judged once."""

    def __init__(self, size: int = _ANSWERS):
        self._known: ScoreCache[Judged] = ScoreCache(size, lambda known: math.isfinite(reward_of(known.info)))

    async def verdict(self, group: str, answer: str, judge: AnswerScorer) -> dict[str, Any]:
        """The verdict on a sample's own answer. The verifier runs once for equal answers of a group, whose
        verdict is the same; the others take no time. If the first could not be judged, was cancelled or hit a time
        limit, which a busy machine may cause, each of the others is judged separately. Whether a second run agrees is
        left to the check for flakiness, which runs each different answer again.
        """
        key = [group, answer]
        known = key in self._known
        try:
            judgement = await self._known.score(key, partial(judged, judge, answer))
        except RuntimeError:
            if not known:
                raise
            return dict(await judge(answer))
        if not known:
            return dict(judgement.info)
        if judgement.timeouts or not self._known.judged(judgement):
            return dict(await judge(answer))
        return dict(judgement.info) | {name: 0.0 for name in _SECONDS if name in judgement.info}

    def replay_limit(self, group: str, answer: str) -> float:
        """Time limit of an answer's replays (`limit_after`). Infinite, so that the verifier's own limit applies, if
        the answer hit that limit or its judgement is not known.
        """
        known = self._known.known([group, answer])
        return math.inf if known is None or known.timeouts else limit_after(known.seconds)

    def tests(self, group: str, answer: str) -> tuple[bool, ...]:
        """Which tests an answer passed, if that is known."""
        known = self._known.known([group, answer])
        return () if known is None else known.tests

    def timeouts(self, group: str, answer: str) -> float:
        """Number of an answer's runs that hit their time limit: a replay with no more of them gets its score. Infinite
        if the answer's judgement is not known.
        """
        known = self._known.known([group, answer])
        return math.inf if known is None else known.timeouts
