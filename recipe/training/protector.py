"""Which skills the next update must not harm: all that are protected, or those that validation saw forgotten."""

from collections.abc import Mapping
from typing import Any

from recipe.training.settings import Settings


class Protector:
    """Decides what the actor is asked to protect, from the settings and the accuracies seen so far.

    names: the protected skills; none where projection is off. The peaks start anew when a run is continued.
    """

    def __init__(self, settings: Settings):
        self.settings = settings.projection
        self.all_names = list(settings.skills.names or [])
        chosen = self.all_names if self.settings.protected is None else self.settings.protected
        self.names = [] if self.settings.method == "off" else list(chosen)
        self.peaks: dict[str, float] = {}
        self.latest: dict[str, float] = {}

    def see(self, accuracies: Mapping[str, float | None]) -> None:
        """Learn a validation's accuracy of each skill, in [0, 1]; None where it was not measured."""
        for name, accuracy in accuracies.items():
            if accuracy is not None:
                self.latest[name] = accuracy
                self.peaks[name] = max(accuracy, self.peaks.get(name, accuracy))

    def active(self) -> list[str]:
        """The skills that the next update must not harm."""
        if self.settings.when == "always":
            return self.names
        return [name for name in self.names if self._fallen(name) > self.settings.forgetting_margin]

    def _fallen(self, name: str) -> float:
        return self.peaks.get(name, 0.0) - self.latest.get(name, 0.0)

    def protection(self) -> dict[str, Any]:
        """Arguments of `workers.safe_update.Protection`; empty when nothing is protected."""
        names = self.active()
        if not names:
            return {}
        return {
            "skills": [self.all_names.index(name) for name in names],
            "names": names,
            "method": self.settings.method,
            "epsilon": self.settings.epsilon,
            "epsilon_kind": self.settings.epsilon_kind,
        }

    def metrics(self) -> dict[str, float]:
        """How many skills are protected now, and how far each lies below its best validation."""
        if not self.names:
            return {}
        fallen = {f"projection/below_peak/{name}": self._fallen(name) for name in self.names if name in self.peaks}
        return fallen | {"projection/active_constraints": float(len(self.active()))}
