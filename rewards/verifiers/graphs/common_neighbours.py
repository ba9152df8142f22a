"""Verifier `common_neighbours`: one list of the common neighbours of two nodes; `[]` if there are none."""

from typing import Self

from pydantic import model_validator

from rewards.verifiers.graphs.inputs import Network, NodeName
from rewards.verifiers.graphs.task import Lists, register


class CommonNeighboursTruth(Network):
    """A graph and two of its nodes."""

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


register("common_neighbours", CommonNeighboursTruth)
