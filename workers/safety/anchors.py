"""Anchors of protected skills: the level and the anchor set that were frozen when protection began."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.safety.levels import SkillLevel
from workers.solution_store import StoredSolution


class AnchorError(ValueError):
    """The anchors of a checkpoint do not fit the run that resumes from it."""


@dataclass(frozen=True)
class Anchor:
    """Where a constraint's protection began: its level (None until it is measured) and its frozen anchor set."""

    level: SkillLevel | None = None
    solutions: tuple[StoredSolution, ...] = ()


class Anchors:
    """Anchors by the constraint's name; an anchor set never changes while it is kept."""

    def __init__(self) -> None:
        self._kept: dict[str, Anchor] = {}

    def of(self, name: str) -> Anchor:
        """A constraint's anchor; without level and solutions before protection began."""
        return self._kept.get(name, Anchor())

    def freeze(self, name: str, solutions: Sequence[StoredSolution], size: int) -> Anchor:
        """Freeze at most `size` of these solutions, evenly spread over them, unless a set is frozen already."""
        if name not in self._kept:
            self._kept[name] = Anchor(None, spread(solutions, size))
        return self._kept[name]

    def measured(self, name: str, level: SkillLevel) -> None:
        """Take a constraint's first known level as its anchor; one whose error is infinite would never have moved."""
        anchor = self.of(name)
        if anchor.level is None and level.known and math.isfinite(level.error):
            self._kept[name] = Anchor(level, anchor.solutions)

    def forget(self, names: Sequence[str]) -> None:
        """Forget the anchors of constraints whose skill is trained again: its protection restarts after that."""
        for name in names:
            self._kept.pop(name, None)

    def state(self) -> dict[str, Any]:
        """The whole content, as JSON values."""
        return {
            name: {
                "level": None if anchor.level is None else [anchor.level.value, anchor.level.error],
                "solutions": [list(map(list, solution)) for solution in anchor.solutions],
                "size": len(anchor.solutions),
            }
            for name, anchor in self._kept.items()
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the content by what `state` returned.

        Raises:
            AnchorError: a level that is no number, or an anchor set that lost some of its solutions.
        """
        self._kept = {}
        for name, saved in state.items():
            level = None if saved["level"] is None else SkillLevel(*saved["level"])
            if level is not None and not level.known:
                raise AnchorError(f"the checkpoint's anchor of {name} has level {level.value}: it is damaged")
            left, size = len(saved["solutions"]), saved.get("size", len(saved["solutions"]))
            if left != size:
                raise AnchorError(
                    f"the checkpoint has {left} of the {size} solutions that the level of {name} was measured on: "
                    "resume from another one, or set projection.closed_loop=false projection.verify=false"
                )
            self._kept[name] = Anchor(level, tuple(StoredSolution(*each) for each in saved["solutions"]))


def spread(solutions: Sequence[StoredSolution], size: int) -> tuple[StoredSolution, ...]:
    """At most `size` of these, evenly spread, in their order."""
    count = min(size, len(solutions))
    return tuple(solutions[index * len(solutions) // count] for index in range(count))
