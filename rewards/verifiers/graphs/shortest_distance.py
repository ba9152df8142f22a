"""Verifier `shortest_distance`: one list, a path from one node to another; fewer edges are better."""

from functools import cached_property
from typing import Self

from pydantic import model_validator

from rewards.verifiers.graphs.inputs import Network, NodeName
from rewards.verifiers.graphs.task import Lists, register


class ShortestDistanceTruth(Network):
    """A graph and two of its nodes that a path connects."""

    goal = "min"

    first: NodeName
    second: NodeName

    @model_validator(mode="after")
    def _has_a_path(self) -> Self:
        if self.distinct([self.first, self.second]) is None:
            raise ValueError("the question must name two nodes of the graph")
        if self.second not in self.distances(self.first):
            raise ValueError("there must be a path between the two nodes")
        return self

    @cached_property
    def best(self) -> float:
        """The number of edges on the shortest path."""
        return self.distances(self.first)[self.second]

    def value(self, answer: Lists) -> float | None:
        """The number of edges on the path."""
        (path,) = answer
        if not self.is_path(path) or (path[0], path[-1]) != (self.first, self.second):
            return None
        return len(path) - 1


register("shortest_distance", ShortestDistanceTruth)
