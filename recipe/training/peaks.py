"""How far each skill's accuracy lies below the best that was seen of it."""

from collections.abc import Mapping
from typing import Any


class Peaks:
    """The latest and the best accuracy of each skill, of measurements that are averaged where they are noisy.

    average: weight of earlier measurements in an exponential average; 0: each counts as it is. The first ones of a
    skill are averaged evenly, so that a single lucky one is no peak.
    """

    def __init__(self, average: float = 0.0):
        self.average = average
        self.best: dict[str, float] = {}
        self.latest: dict[str, float] = {}
        self._seen: dict[str, int] = {}

    def see(self, accuracies: Mapping[str, float | None]) -> None:
        """Take over a measurement of each skill, in [0, 1]; None where it was not measured."""
        for name, accuracy in accuracies.items():
            if accuracy is None:
                continue
            seen = self._seen.get(name, 0)
            kept = min(self.average, seen / (seen + 1))
            self._seen[name] = seen + 1
            self.latest[name] = kept * self.latest.get(name, 0.0) + (1 - kept) * accuracy
            # Before the average has its full length it is as noisy as its first measurements.
            if kept == self.average:
                self.best[name] = max(self.latest[name], self.best.get(name, 0.0))

    def below(self, name: str) -> float:
        """Best minus latest accuracy, >= 0; 0 while too little was measured to know a best one."""
        return self.best[name] - self.latest[name] if name in self.best else 0.0

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep, as JSON can hold it."""
        return {"best": self.best, "latest": self.latest, "seen": self._seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self.best, self.latest, self._seen = (dict(state[key]) for key in ("best", "latest", "seen"))
