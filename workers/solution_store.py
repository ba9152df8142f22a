"""Solutions that the verifier accepted, a few for each skill: what its log-likelihood gradient is made of."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Solution(NamedTuple):
    """Token ids of a prompt and of an accepted response; mask: 0 where a tool wrote, else 1."""

    prompt: list[int]
    response: list[int]
    mask: list[int]


def plain_solutions(solutions: Sequence[Solution]) -> list[tuple[list[int], ...]]:
    """Solutions as a batch carries them."""
    return [tuple(solution) for solution in solutions]


class SolutionStore:
    """The newest accepted solution of each of the last ``capacity`` prompts, by skill.

    It fills while a skill is trained, and keeps what it has once the skill is no longer.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._skills: dict[str, OrderedDict[str, Solution]] = {}

    def add(self, skill: str, prompt: str, solution: Solution) -> None:
        """Keep a solution of the prompt with this name; the oldest prompt's is dropped when there are too many."""
        kept = self._skills.setdefault(skill, OrderedDict())
        kept.pop(prompt, None)
        kept[prompt] = solution
        while len(kept) > self.capacity:
            kept.popitem(last=False)

    def of(self, skill: str) -> list[Solution]:
        """Solutions of a skill, the oldest first; none for one that was never solved."""
        return list(self._skills.get(skill, {}).values())

    def state(self) -> dict[str, Any]:
        """Everything kept, as JSON can hold it."""
        return {skill: [[name, *map(list, kept)] for name, kept in of.items()] for skill, of in self._skills.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned, in place of what is kept; a smaller capacity keeps the newest."""
        self._skills = {}
        for skill, rows in state.items():
            for name, prompt, response, mask in rows:
                self.add(skill, name, Solution(prompt, response, mask))
