"""Samples of one prompt meet here: credit needs to know what its siblings scored, and what they wrote."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from rewards.edits import Changed

# Groups remembered at once; those that have been complete for longest are forgotten first.
KEPT_GROUPS = 4_096


@dataclass
class _Group:
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    samples: dict[int, tuple[float, Changed]] = field(default_factory=dict)


class GroupBoard:
    """Where samples post their scores and wait for their siblings'; also usable as an actor that processes share.

    size: samples of a group (rollout.n). patience: seconds that a sample waits for siblings, some of which may fail.
    """

    def __init__(self, size: int, patience: float):
        self.size = size
        self.patience = patience
        self._groups: OrderedDict[str, _Group] = OrderedDict()

    async def meet(self, group: str, sample: int, score: float, text: Changed) -> list[tuple[float, Changed]] | None:
        """Scores and texts (or actions) of the whole group in the order of its samples; None when some did not come in
        time.
        """
        here = self._groups.setdefault(group, _Group())
        here.samples[sample] = (score, text)
        if len(here.samples) >= self.size:
            here.complete.set()
        while len(self._groups) > KEPT_GROUPS:
            self._groups.popitem(last=False)
        try:
            await asyncio.wait_for(here.complete.wait(), self.patience)
        except TimeoutError:
            return None
        return [here.samples[index] for index in sorted(here.samples)]
