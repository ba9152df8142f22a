"""Verifiers of tasks on two molecules with numbered atoms: each answer maps atoms of the first to the second."""

from functools import cached_property
from typing import Annotated, Self

import networkx as nx
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from rewards.verifiers.graphs.task import HardTruth, Lists, register

Element = Annotated[str, StringConstraints(min_length=1, max_length=8)]


class CheckedMolecule(BaseModel):
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

    def part(self, atoms: list[int]) -> nx.Graph:
        """The graph of these atoms and the bonds between them."""
        graph = nx.Graph(bond for bond in self.bonds if {*bond} <= {*atoms})
        graph.add_nodes_from(atoms)
        return graph


def are_isomorphic(left: nx.Graph, right: nx.Graph) -> bool:
    """Whether two graphs are isomorphic; by component, as a search over all of them at once can explode."""
    others = [right.subgraph(nodes) for nodes in nx.connected_components(right)]
    for nodes in nx.connected_components(left):
        places = (place for place, other in enumerate(others) if nx.vf2pp_is_isomorphic(left.subgraph(nodes), other))
        if (place := next(places, None)) is None:
            return False
        others.pop(place)
    return not others


def atom_numbers(items: list[str], molecule: CheckedMolecule) -> list[int] | None:
    """The atoms that a list names by number; None if one is unknown or repeated."""
    known = {str(number): number for number in range(len(molecule.atoms))}
    numbers = [known[item] for item in items if item in known]
    return numbers if len(items) == len(numbers) == len(set(numbers)) else None


class CommonSubgraphTruth(HardTruth):
    """`mcs`: two molecules and the number of atoms in their largest common induced subgraph.

    An answer is two lists of atom numbers, the first of each molecule; atoms are paired by their position in the lists.
    A pairing is feasible if it pairs distinct atoms of the same element, and two atoms are bonded in the first molecule
    exactly if their partners are bonded in the second: an isomorphism of the two induced subgraphs, connected or not.
    More pairs are better. GraphArena's prompts show no elements and ask for two sets of atoms: if all elements are `*`,
    any isomorphism between the two sets will do.
    """

    list_count = 2
    goal = "max"

    first: CheckedMolecule
    second: CheckedMolecule

    def value(self, answer: Lists) -> float | None:
        """The number of pairs."""
        left, right = atom_numbers(answer[0], self.first), atom_numbers(answer[1], self.second)
        if left is None or right is None or len(left) != len(right):
            return None
        if {*self.first.atoms, *self.second.atoms} == {"*"}:
            return len(left) if are_isomorphic(self.first.part(left), self.second.part(right)) else None
        if any(self.first.atoms[a] != self.second.atoms[b] for a, b in zip(left, right, strict=True)):
            return None
        partner = dict(zip(left, right, strict=True))
        bonds = [(partner[a], partner[b]) for a, b in self.first.bonds if a in partner and b in partner]
        mates = set(right)
        partners_bonds = sum(a in mates and b in mates for a, b in self.second.bonds)
        # Every bond has its image, and the counts are equal: so the second molecule has no other bond.
        return len(left) if len(bonds) == partners_bonds and self.second.joined.issuperset(bonds) else None


class EditDistanceTruth(HardTruth):
    """`ged`: two molecules of equal size and their edit distance.

    An answer is one list, a permutation of the atom numbers: entry i (from 0) is the atom of the second molecule to
    which atom i of the first is mapped. The cost is the number of atoms mapped to another element plus the number of
    bonds that only one of the molecules has under the mapping; less is better.
    """

    goal = "min"

    first: CheckedMolecule
    second: CheckedMolecule

    @model_validator(mode="after")
    def _are_equal_in_size(self) -> Self:
        if len(self.first.atoms) != len(self.second.atoms):
            raise ValueError("the molecules must have the same number of atoms")
        return self

    def value(self, answer: Lists) -> float | None:
        """The number of edits."""
        image = atom_numbers(answer[0], self.second)
        if image is None or len(image) != len(self.first.atoms):
            return None
        relabelled = sum(self.first.atoms[atom] != self.second.atoms[image[atom]] for atom in range(len(image)))
        preserved = sum((image[left], image[right]) in self.second.joined for left, right in self.first.bonds)
        return relabelled + len(self.first.bonds) + len(self.second.bonds) - 2 * preserved


register("mcs", CommonSubgraphTruth)
register("ged", EditDistanceTruth)
