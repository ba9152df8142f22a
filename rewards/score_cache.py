"""Scores of programs by their content: equal programs of a step are verified once."""

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence


class ScoreCache:
    """Scores of programs by their content, so that equal programs are verified once, also while the first still runs.

    size: entries kept; the least recently used one goes first.
    """

    def __init__(self, size: int = 65_536):
        self.size = size
        self.hits = self.misses = 0
        self._scores: OrderedDict[bytes, asyncio.Future[float]] = OrderedDict()

    @staticmethod
    def _digest(key: Sequence[str]) -> bytes:
        return hashlib.sha256("\0".join(key).encode(errors="surrogatepass")).digest()

    def __contains__(self, key: Sequence[str]) -> bool:
        return self._digest(key) in self._scores

    async def score(self, key: Sequence[str], verify: Callable[[], Awaitable[float]]) -> float:
        """The score under this key, asked of `verify` when it is not known; what could not be judged is not kept."""
        digest = self._digest(key)
        known = self._scores.get(digest)
        if known is not None:
            self.hits += 1
            self._scores.move_to_end(digest)
            return await asyncio.shield(known)
        self.misses += 1
        pending: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._scores[digest] = pending
        try:
            value = await verify()
        except BaseException as error:
            self._scores.pop(digest, None)
            if not pending.done():
                pending.set_result(math.nan)
            raise error
        pending.set_result(value)
        if not math.isfinite(value):
            self._scores.pop(digest, None)
        while len(self._scores) > self.size:
            self._scores.popitem(last=False)
        return value
