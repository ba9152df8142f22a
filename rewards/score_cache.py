"""What the verifier said of programs, by their content: equal programs of a step are verified once."""

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

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
