"""Verifier `diameter`: one list, a shortest path between two nodes farthest apart; more edges are better."""

from functools import cached_property
from typing import Self

from pydantic import model_validator

from rewards.verifiers.graphs.inputs import Network
from rewards.verifiers.graphs.task import Lists, register


class DiameterTruth(Network):
    """A connected graph."""

    goal = "max"

    @model_validator(mode="after")
    def _is_connected(self) -> Self:
        if len(self.distances(self.nodes[0])) < len(self.nodes):
            raise ValueError("the graph must be connected")
        return self

    @cached_property
    def best(self) -> float:
        """The number of edges on a shortest path between the two nodes farthest apart."""
        return max(max(self.distances(node).values()) for node in self.nodes)

    def value(self, answer: Lists) -> float | None:
        """The number of edges; None if there is a shorter path between the same nodes."""
        (path,) = answer
        if not self.is_path(path) or self.distances(path[0])[path[-1]] < len(path) - 1:
            return None
        return len(path) - 1


register("diameter", DiameterTruth)
