"""Verifier `connected_components`: one list with one node of each component; naming fewer components is worse."""

from functools import cached_property

from rewards.verifiers.graphs.inputs import Network
from rewards.verifiers.graphs.task import Lists, register


class ComponentsTruth(Network):
    """A graph."""

    goal = "max"

    @cached_property
    def _component(self) -> dict[str, str]:
        """The first node of each node's component."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if node not in found:
                found |= dict.fromkeys(self.distances(node), node)
        return found

    @cached_property
    def best(self) -> float:
        """The number of components."""
        return len(set(self._component.values()))

    def value(self, answer: Lists) -> float | None:
        """The number of components named; None if one is named twice."""
        chosen = self.distinct(answer[0])
        if chosen is None or len({self._component[node] for node in chosen}) < len(chosen):
            return None
        return len(chosen)


register("connected_components", ComponentsTruth)
