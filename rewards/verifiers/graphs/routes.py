"""Verifiers of tasks whose answer is one list of nodes in order: a path or a tour."""

from functools import cached_property
from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, model_validator

from rewards.verifiers.graphs.networks import Network, NodeName, require_distinct
from rewards.verifiers.graphs.task import HardTruth, Lists, register


class ShortestDistanceTruth(Network):
    """`shortest_distance`: a graph and two of its nodes that a path connects.

    The list is a path from one to the other; fewer edges are better.
    """

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


class DiameterTruth(Network):
    """`diameter`: a connected graph.

    The list is a shortest path between two nodes farthest apart; more edges are better.
    """

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


Distance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TourTruth(HardTruth):
    """`tsp`: places, the symmetric matrix of their distances in the same order, and the length of the shortest tour.

    The list has all places, each once, and ends with its first place.
    """

    goal = "min"
    steepness = 2

    nodes: list[NodeName] = Field(min_length=2)
    distances: list[list[Distance]]

    @model_validator(mode="after")
    def _is_a_distance_table(self) -> Self:
        require_distinct(self.nodes)
        if {len(self.distances), *map(len, self.distances)} != {len(self.nodes)}:
            raise ValueError("distances must have a row and a column for every place")
        if [list(column) for column in zip(*self.distances, strict=True)] != self.distances:
            raise ValueError("distances must be the same in both directions")
        if any(row[place] for place, row in enumerate(self.distances)):
            raise ValueError("the distance of a place to itself must be 0")
        return self

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {node: number for number, node in enumerate(self.nodes)}

    def value(self, answer: Lists) -> float | None:
        """The length of the tour, in the unit of the distances."""
        (tour,) = answer
        if len(tour) != len(self.nodes) + 1 or tour[0] != tour[-1] or self._numbers.keys() != set(tour):
            return None
        return sum(self.distances[self._numbers[here]][self._numbers[there]] for here, there in pairwise(tour))


register("shortest_distance", ShortestDistanceTruth)
register("diameter", DiameterTruth)
register("tsp", TourTruth)
