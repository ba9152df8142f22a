"""Graphs with named nodes in the ground truths of graph tasks."""

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from rewards.verifiers.graphs.task import GraphTruth

# Names that a bracketed list can hold: no commas, brackets or line ends, no quotes or spaces around the name.
NodeName = Annotated[str, StringConstraints(pattern=r"^[^\[\],'\"\s]([^\[\],\n\r]*[^\[\],'\"\s])?$", max_length=200)]


def require_distinct(names: list[str]) -> None:
    """Raise ValueError if a name is repeated."""
    if len(set(names)) < len(names):
        raise ValueError("node names must be distinct")


class Network(GraphTruth):
    """A problem on a graph: node names, and the pairs of nodes that an edge joins, each pair once."""

    nodes: list[NodeName] = Field(min_length=1)
    edges: list[tuple[NodeName, NodeName]]

    @model_validator(mode="after")
    def _is_simple(self) -> Self:
        require_distinct(self.nodes)
        if not {end for edge in self.edges for end in edge} <= set(self.nodes):
            raise ValueError("an edge names an unknown node")
        if any(len(set(edge)) == 1 for edge in self.edges):
            raise ValueError("an edge joins a node to itself")
        if len({frozenset(edge) for edge in self.edges}) < len(self.edges):
            raise ValueError("an edge is listed twice")
        return self

    @cached_property
    def neighbours(self) -> dict[str, set[str]]:
        """The neighbours of each node."""
        neighbours: dict[str, set[str]] = {node: set() for node in self.nodes}
        for left, right in self.edges:
            neighbours[left].add(right)
            neighbours[right].add(left)
        return neighbours

    def distinct(self, names: list[str]) -> set[str] | None:
        """The named nodes, as a set; None if a name is unknown or repeated."""
        chosen = set(names)
        return chosen if len(chosen) == len(names) and chosen <= self.neighbours.keys() else None

    def is_path(self, names: list[str]) -> bool:
        """Whether the names form a path: at least one node, no node twice, each joined to the next."""
        if not names or self.distinct(names) is None:
            return False
        return all(after in self.neighbours[before] for before, after in pairwise(names))

    def distances(self, start: str) -> dict[str, int]:
        """The number of edges on a shortest path from `start` to each reachable node."""
        distances = {start: 0}
        border: Iterable[str] = [start]
        while border:
            border = {far for near in border for far in self.neighbours[near]} - distances.keys()
            distance = max(distances.values()) + 1
            distances.update(dict.fromkeys(border, distance))
        return distances
