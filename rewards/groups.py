"""Samples of one prompt meet here: credit needs to know what its siblings scored, and what they wrote."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rewards.edits import Changed

# Whether any sample of a group with these scores (of those that could be judged) has an advantage other than 0.
GroupAdvantage = Callable[[Sequence[float]], bool]

# Groups remembered at once, where nobody says that their samples have ended; the oldest goes first.
KEPT_GROUPS = 65_536


@dataclass
class _Group:
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    samples: dict[int, tuple[float, Changed]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)


class GroupBoard:
    """Where samples post their scores and wait for their siblings'; also usable as an actor that processes share.

    size: samples of a group (rollout.n). patience: seconds that a sample waits for siblings that are under way.
    """

    def __init__(self, size: int, patience: float):
        self.size = size
        self.patience = patience
        self._groups: OrderedDict[str, _Group] = OrderedDict()

    async def meet(
        self, group: str, sample: int, score: float, text: Changed, wait: bool = True
    ) -> list[tuple[float, Changed]] | None:
        """Scores and texts (or actions) of the group in the order of its samples, without those that ended before they
        had a score; None when some are still under way and patience is over, or `wait` is false.
        """
        here = self._group(group)
        here.samples[sample] = (score, text)
        self._look_for_the_end_of(here)
        if not here.complete.is_set():
            try:
                await asyncio.wait_for(here.complete.wait(), self.patience if wait else 0.0)
            except TimeoutError:
                return None
        return [here.samples[index] for index in sorted(here.samples)]

    async def leave(self, group: str, sample: int) -> None:
        """A sample has ended, with a score or without one: its siblings do not wait for it. When all have, the group is
        forgotten.
        """
        here = self._group(group)
        here.ended.add(sample)
        self._look_for_the_end_of(here)
        if len(here.ended) >= self.size:
            del self._groups[group]

    def _group(self, group: str) -> _Group:
        here = self._groups.setdefault(group, _Group())
        if len(self._groups) > KEPT_GROUPS:
            self._groups.popitem(last=False)
        return here

    def _look_for_the_end_of(self, here: _Group) -> None:
        if len(here.samples.keys() | here.ended) >= self.size:
            here.complete.set()
