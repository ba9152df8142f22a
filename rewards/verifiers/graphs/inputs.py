"""Graphs with named nodes and molecules with numbered atoms, as ground truths hold them."""

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from rewards.verifiers.graphs.task import GraphTruth

Element = Annotated[str, StringConstraints(min_length=1, max_length=8)]


class Molecule(BaseModel):
    """Atoms, numbered from 0 by their place, and the pairs of them that a bond of any order joins, each pair once."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    atoms: list[Element] = Field(min_length=1)
    bonds: list[tuple[int, int]]

    @model_validator(mode="after")
    def _is_simple(self) -> Self:
        if any(not 0 <= end < len(self.atoms) for bond in self.bonds for end in bond):
            raise ValueError("a bond joins an atom that is not there")
        if any(left == right for left, right in self.bonds):
            raise ValueError("a bond joins an atom to itself")
        if len(self.joined) < 2 * len(self.bonds):
            raise ValueError("a bond comes twice")
        return self

    @cached_property
    def joined(self) -> frozenset[tuple[int, int]]:
        """The joined pairs of atoms, in both directions."""
        return frozenset(self.bonds) | {(right, left) for left, right in self.bonds}


def atom_numbers(items: list[str], molecule: Molecule) -> list[int] | None:
    """The atoms that a list names by number; None where one is unknown or comes twice."""
    known = {str(number): number for number in range(len(molecule.atoms))}
    numbers = [known[item] for item in items if item in known]
    return numbers if len(items) == len(numbers) == len(set(numbers)) else None


# A name can be told apart in a bracketed list: no commas, brackets or line ends, no quotes or blanks around it.
NodeName = Annotated[str, StringConstraints(pattern=r"^[^\[\],'\"\s]([^\[\],\n\r]*[^\[\],'\"\s])?$", max_length=200)]


def require_distinct(names: list[str]) -> None:
    """ValueError where a name comes twice."""
    if len(set(names)) < len(names):
        raise ValueError("node names must be distinct")


class Network(GraphTruth):
    """A problem on a graph: node names, and the pairs of them that an edge joins, each pair once."""

    nodes: list[NodeName] = Field(min_length=1)
    edges: list[tuple[NodeName, NodeName]]

    @model_validator(mode="after")
    def _is_simple(self) -> Self:
        require_distinct(self.nodes)
        if not {end for edge in self.edges for end in edge} <= set(self.nodes):
            raise ValueError("an edge joins a node that is not there")
        if any(len(set(edge)) == 1 for edge in self.edges):
            raise ValueError("an edge joins a node to itself")
        if len({frozenset(edge) for edge in self.edges}) < len(self.edges):
            raise ValueError("an edge comes twice")
        return self

    @cached_property
    def neighbours(self) -> dict[str, set[str]]:
        """The nodes that an edge joins to each node."""
        found: dict[str, set[str]] = {node: set() for node in self.nodes}
        for left, right in self.edges:
            found[left].add(right)
            found[right].add(left)
        return found

    def distinct(self, names: list[str]) -> set[str] | None:
        """The nodes named, as a set; None where a name is unknown or comes twice."""
        chosen = set(names)
        return chosen if len(chosen) == len(names) and chosen <= self.neighbours.keys() else None

    def is_path(self, names: list[str]) -> bool:
        """Whether the names are a path: at least one node, none twice, each joined to the next."""
        if not names or self.distinct(names) is None:
            return False
        return all(after in self.neighbours[before] for before, after in pairwise(names))

    def distances(self, start: str) -> dict[str, int]:
        """Edges on the shortest way from `start` to each node that can be reached."""
        found = {start: 0}
        border: Iterable[str] = [start]
        while border:
            border = {far for near in border for far in self.neighbours[near]} - found.keys()
            distance = max(found.values()) + 1
            found.update(dict.fromkeys(border, distance))
        return found
