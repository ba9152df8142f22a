"""Verifier `tsp`, travelling salesman: one list of all places, each once, that ends with its first place."""

from functools import cached_property
from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, model_validator

from rewards.verifiers.graphs.inputs import NodeName, require_distinct
from rewards.verifiers.graphs.task import HardTruth, Lists, register

Distance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TourTruth(HardTruth):
    """Places, the symmetric matrix of their distances in the same order, and the length of the shortest tour."""

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


register("tsp", TourTruth)
