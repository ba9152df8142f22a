"""Judge answers and replays in a reward worker, with a time limit for replays and a cache of scores by content."""

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from rewards.sandbox.client.accounting import counted

Value = TypeVar("Value")


class ScoreCache(Generic[Value]):
    """Scores of programs by their content, so that equal programs are verified once, also while the first still runs.

    size: entries kept; the least recently used one goes first. judged: whether a value is one to keep; what could not
    be judged is asked again.
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
        """The score under this key; None where it was not asked for, is not there yet, or could not be had."""
        score = self._scores.get(self._digest(key))
        return score.result() if score is not None and score.done() and not score.exception() else None

    async def score(self, key: Sequence[str], verify: Callable[[], Awaitable[Value]]) -> Value:
        """The score under this key, asked of `verify` when it is not known.

        Raises what `verify` raises, and RuntimeError where that of an equal program, asked for before, raised.
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
            pending.exception()  # nobody may wait for it, and that is no mistake
            raise
        pending.set_result(value)
        if not self.judged(value):
            self._scores.pop(digest, None)
        while len(self._scores) > self.size:
            self._scores.popitem(last=False)
        return value


# Verdicts on answers that are kept: the answers of a group come close together, so few are enough.
_ANSWERS = 4096

# A replay may take so many times as long as the answer itself, and never has less than so many seconds.
_TIMES_OWN = 4.0
_LEAST_SECONDS = 0.5

# What compute_score says of an answer, or of a changed one, to the same problem.
Judge = Callable[[str], Awaitable[Mapping[str, Any]]]


def reward_of(info: Mapping[str, Any]) -> float:
    """R in [0, 1] that credits are measured in: the share of tests passed where the verifier tells it, else the score.

    NaN when the verification could not be done.
    """
    if info.get("error") == "infrastructure":
        return math.nan
    return float(info["pass_ratio"] if "pass_ratio" in info else info["score"])


@dataclass(frozen=True)
class Judged:
    """One judgement: the verdict, what it took in seconds of sandbox workers, runs that met their time limit."""

    info: Mapping[str, Any]
    seconds: float
    timeouts: int


async def judged(judge: Judge, answer: str) -> Judged:
    """The judgement of one answer; raises what the judge raises."""
    with counted() as busy:
        info = await judge(answer)
    # The error of a verdict names the first failure only; a driver may end what is slow before the sandbox does.
    timeouts = max(busy.timeouts, int(info.get("error") == "timeout"))
    return Judged(info, float(info.get("busy_seconds", busy.seconds)), timeouts)


def limit_after(seconds: float) -> float:
    """Time limit in seconds of a run of the replays of an answer that took so many seconds of sandbox workers.

    Doubled until it suffices, so that equal programs of answers that took nearly as long are equal requests.
    """
    limit = _LEAST_SECONDS
    while limit < _TIMES_OWN * seconds:
        limit *= 2
    return limit


class Answers:
    """Judgements of the samples' own answers, equal ones of a group once."""

    def __init__(self, size: int = _ANSWERS):
        self._known: ScoreCache[Judged] = ScoreCache(size, lambda own: math.isfinite(reward_of(own.info)))

    async def verdict(self, group: str, answer: str, judge: Judge) -> dict[str, Any]:
        """What the verifier says of a sample's own answer: asked once for equal answers of a group, which differ in
        nothing that it could see. The others cost no time of sandbox workers; where the first could not be judged, each
        of them asks for itself. Whether a second run says the same is for the check for flakiness, which looks at each
        different answer on its own.
        """
        key = [group, answer]
        known = key in self._known
        own = await self._known.score(key, partial(judged, judge, answer))
        if known and not self._known.judged(own):
            return dict(await judge(answer))
        free = known and "busy_seconds" in own.info
        return {**own.info, "busy_seconds": 0.0} if free else dict(own.info)

    def replay_limit(self, group: str, answer: str) -> float:
        """Time limit of an answer's replays (`limit_after`); infinite, so that the verifier's own holds, where the
        answer met that itself or its judgement is not known.
        """
        own = self._known.known([group, answer])
        return math.inf if own is None or own.timeouts else limit_after(own.seconds)

    def timeouts(self, group: str, answer: str) -> float:
        """Runs of an answer that met their time limit: as many of a replay are no more than a wrong answer. Infinite
        where its judgement is not known.
        """
        own = self._known.known([group, answer])
        return math.inf if own is None else own.timeouts
