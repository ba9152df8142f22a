"""The changes that a replay may make to one solution, whatever its steps are: a program's parts or an agent's turns."""

import random
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from rewards.interventions import intervene, keep
from rewards.segments import NoSteps, Step, Unit, segment

# What is verified: a text, or the actions of an agent in order.
Changed = str | tuple[str, ...]


class Edits(Protocol):
    """What the estimation asks of a solution; None where no valid change exists."""

    def whole(self) -> Changed:
        """The solution as the policy wrote it."""
        ...

    def rewritten(self) -> Changed | None:
        """The solution with all its steps, in the layout that its changes have."""
        ...

    def keep(self, chosen: Collection[int]) -> Changed | None:
        """The solution with these steps only."""
        ...

    def swap(self, index: int, rng: random.Random) -> Changed | None:
        """The solution with this step as one of the siblings wrote it; None where all wrote the same."""
        ...


class ProgramEdits:
    """Changes of one text whose steps are parts of it (`rewards.interventions`).

    siblings: other solutions of the same problem.
    """

    def __init__(
        self, solution: str, steps: Sequence[Step], unit: Unit, text_steps: bool = False, siblings: Sequence[str] = ()
    ):
        self.solution = solution
        self.steps = steps
        self.unit = unit
        self.text_steps = text_steps
        self.siblings = siblings

    def whole(self) -> str:
        return self.solution

    def rewritten(self) -> str | None:
        return self.keep(range(len(self.steps)))

    def keep(self, chosen: Collection[int]) -> str | None:
        return keep(self.solution, self.steps, chosen)

    def swap(self, index: int, rng: random.Random) -> str | None:
        """With the step of a sibling that has as many steps."""
        own = self.solution[self.steps[index].start : self.steps[index].end]
        others: list[str] = []
        for sibling in self.siblings:
            try:
                found = segment(sibling, self.unit, text_steps=self.text_steps)
            except NoSteps:
                continue
            if len(found) == len(self.steps) and (text := sibling[found[index].start : found[index].end]) != own:
                others.append(text)
        if not others:
            return None
        return intervene(self.solution, self.steps, index, "replace", replacement=rng.choice(others))


class TurnEdits:
    """Changes of what an agent did: any of its actions may go, since the rest is replayed from a fresh environment.

    actions: text of each assistant turn in order. siblings: the actions of other trajectories of the same problem.
    """

    def __init__(self, actions: tuple[str, ...], siblings: Sequence[Any] = ()):
        self.actions = actions
        self.siblings = siblings

    def whole(self) -> tuple[str, ...]:
        return self.actions

    def rewritten(self) -> tuple[str, ...]:
        return self.actions

    def keep(self, chosen: Collection[int]) -> tuple[str, ...]:
        return tuple(self.actions[index] for index in sorted(chosen))

    def swap(self, index: int, rng: random.Random) -> tuple[str, ...] | None:
        """With what a sibling did in the same turn."""
        others = [
            sibling[index]
            for sibling in self.siblings
            if index < len(sibling) and sibling[index] != self.actions[index]
        ]
        if not others:
            return None
        return (*self.actions[:index], rng.choice(others), *self.actions[index + 1 :])
