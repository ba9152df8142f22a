"""Store of accepted solutions, a few per skill, whose log-likelihood gradient protects the skill."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class StoredSolution(NamedTuple):
    """Token ids of a prompt and of an accepted response; mask: 0 for a tool's tokens, else 1."""

    prompt: list[int]
    response: list[int]
    mask: list[int]


def plain_solutions(solutions: Sequence[StoredSolution]) -> list[tuple[list[int], ...]]:
    """Solutions as plain tuples, the form in which a batch carries them."""
    return [tuple(solution) for solution in solutions]


class SolutionStore:
    """The newest accepted solution of each of the last ``capacity`` prompts, by skill.

    It fills while a skill is trained, and keeps its content afterwards.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._skills: dict[str, OrderedDict[str, StoredSolution]] = {}

    def add(self, skill: str, prompt: str, solution: StoredSolution) -> None:
        """Keep a solution of the prompt with this name; beyond the capacity, drop that of the oldest prompt."""
        kept = self._skills.setdefault(skill, OrderedDict())
        kept.pop(prompt, None)
        kept[prompt] = solution
        while len(kept) > self.capacity:
            kept.popitem(last=False)

    def of(self, skill: str) -> list[StoredSolution]:
        """Solutions of a skill, the oldest first; none for one that was never solved."""
        return list(self._skills.get(skill, {}).values())

    def state(self) -> dict[str, Any]:
        """The whole content, as JSON values."""
        return {skill: [[name, *map(list, kept)] for name, kept in of.items()] for skill, of in self._skills.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the content by what `state` returned; a smaller capacity keeps the newest."""
        self._skills = {}
        for skill, rows in state.items():
            for name, prompt, response, mask in rows:
                self.add(skill, name, StoredSolution(prompt, response, mask))
