"""Verifiers of tasks whose answer is one list of nodes: a set of them, in any order."""

from functools import cached_property
from typing import Self

from pydantic import model_validator

from rewards.verifiers.graphs.networks import Network, NodeName
from rewards.verifiers.graphs.task import HardTruth, Lists, register


class CliqueTruth(HardTruth, Network):
    """`mcp`: a graph and the size of its largest clique.

    Each two of the nodes are joined; more is better.
    """

    goal = "max"

    def value(self, answer: Lists) -> float | None:
        """The number of nodes."""
        chosen = self.distinct(answer[0])
        if chosen is None or any(len(chosen & self.neighbours[node]) < len(chosen) - 1 for node in chosen):
            return None
        return len(chosen)


class IndependentSetTruth(HardTruth, Network):
    """`mis`: a graph and the size of its largest independent set.

    No two of the nodes are joined; more is better.
    """

    goal = "max"

    def value(self, answer: Lists) -> float | None:
        """The number of nodes."""
        chosen = self.distinct(answer[0])
        if chosen is None or any(not chosen.isdisjoint(self.neighbours[node]) for node in chosen):
            return None
        return len(chosen)


class VertexCoverTruth(HardTruth, Network):
    """`mvc`: a graph and the size of its smallest vertex cover.

    Every edge has at least one end among the nodes; fewer is better.
    """

    goal = "min"

    def value(self, answer: Lists) -> float | None:
        """The number of nodes."""
        chosen = self.distinct(answer[0])
        if chosen is None or any(not self.neighbours[node] <= chosen for node in self.neighbours.keys() - chosen):
            return None
        return len(chosen)


class CommonNeighboursTruth(Network):
    """`common_neighbours`: a graph and two of its nodes.

    The nodes are common neighbours of the two; `[]` if there are none.
    """

    goal = "max"

    first: NodeName
    second: NodeName

    @model_validator(mode="after")
    def _are_two_nodes(self) -> Self:
        if self.distinct([self.first, self.second]) is None:
            raise ValueError("the question must name two nodes of the graph")
        return self

    @property
    def best(self) -> float:
        """The number of common neighbours."""
        return len(self.neighbours[self.first] & self.neighbours[self.second])

    def value(self, answer: Lists) -> float | None:
        """The number of nodes."""
        chosen = self.distinct(answer[0])
        if chosen is None or not chosen <= self.neighbours[self.first] & self.neighbours[self.second]:
            return None
        return len(chosen)


class ComponentsTruth(Network):
    """`connected_components`: a graph.

    The list has one node of each component; naming fewer components is worse.
    """

    goal = "max"

    @cached_property
    def _component(self) -> dict[str, str]:
        """The first node of each node's component."""
        component_of: dict[str, str] = {}
        for node in self.nodes:
            if node not in component_of:
                component_of |= dict.fromkeys(self.distances(node), node)
        return component_of

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


register("mcp", CliqueTruth)
register("mis", IndependentSetTruth)
register("mvc", VertexCoverTruth)
register("common_neighbours", CommonNeighboursTruth)
register("connected_components", ComponentsTruth)
