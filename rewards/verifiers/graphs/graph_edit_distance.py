"""Verifier `ged`, graph edit distance of two molecules of equal size: one list, a permutation of their atom numbers.

Entry i of the list (from 0) is the atom of the second molecule to which atom i of the first is mapped. The cost is the
number of atoms mapped to another element plus the number of bonds that only one of the molecules has under the mapping;
less is better.
"""

from typing import Self

from pydantic import model_validator

from rewards.verifiers.graphs.inputs import Molecule, atom_numbers
from rewards.verifiers.graphs.task import HardTruth, Lists, register


class EditDistanceTruth(HardTruth):
    """Two molecules of equal size and their edit distance."""

    goal = "min"

    first: Molecule
    second: Molecule

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
        kept = sum((image[left], image[right]) in self.second.joined for left, right in self.first.bonds)
        return relabelled + len(self.first.bonds) + len(self.second.bonds) - 2 * kept


register("ged", EditDistanceTruth)
