"""Inputs of graph tasks in ground truths: graphs with named nodes, and molecules with numbered atoms."""

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from rewards.verifiers.graphs.task import GraphTruth

Element = Annotated[str, StringConstraints(min_length=1, max_length=8)]


class Molecule(BaseModel):
    """Elements of the atoms, numbered from 0, and the pairs of atoms that a bond of any order joins, each pair once."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    atoms: list[Element] = Field(min_length=1)
    bonds: list[tuple[int, int]]

    @model_validator(mode="after")
    def _is_simple(self) -> Self:
        if any(not 0 <= end < len(self.atoms) for bond in self.bonds for end in bond):
            raise ValueError("a bond names an unknown atom")
        if any(left == right for left, right in self.bonds):
            raise ValueError("a bond joins an atom to itself")
        if len(self.joined) < 2 * len(self.bonds):
            raise ValueError("a bond is listed twice")
        return self

    @cached_property
    def joined(self) -> frozenset[tuple[int, int]]:
        """The joined pairs of atoms, in both directions."""
        return frozenset(self.bonds) | {(right, left) for left, right in self.bonds}


def atom_numbers(items: list[str], molecule: Molecule) -> list[int] | None:
    """The atoms that a list names by number; None if one is unknown or repeated."""
    known = {str(number): number for number in range(len(molecule.atoms))}
    numbers = [known[item] for item in items if item in known]
    return numbers if len(items) == len(numbers) == len(set(numbers)) else None


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
        found: dict[str, set[str]] = {node: set() for node in self.nodes}
        for left, right in self.edges:
            found[left].add(right)
            found[right].add(left)
        return found

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
        found = {start: 0}
        border: Iterable[str] = [start]
        while border:
            border = {far for near in border for far in self.neighbours[near]} - found.keys()
            distance = max(found.values()) + 1
            found.update(dict.fromkeys(border, distance))
        return found
