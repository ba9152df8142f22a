"""Verifier `mcs`, maximum common subgraph of two molecules: two lists of atom numbers, the first of each molecule.

Atoms are paired by their position in the lists. A pairing is feasible if it pairs distinct atoms of the same element,
and two atoms are bonded in the first molecule exactly if their partners are bonded in the second: an isomorphism of the
two induced subgraphs, connected or not. More pairs are better.
"""

from rewards.verifiers.graphs.inputs import Molecule, atom_numbers
from rewards.verifiers.graphs.task import HardTruth, Lists, register


class CommonSubgraphTruth(HardTruth):
    """Two molecules and the number of atoms in their largest common induced subgraph."""

    list_count = 2
    goal = "max"

    first: Molecule
    second: Molecule

    def value(self, answer: Lists) -> float | None:
        """The number of pairs."""
        left, right = atom_numbers(answer[0], self.first), atom_numbers(answer[1], self.second)
        if left is None or right is None or len(left) != len(right):
            return None
        if any(self.first.atoms[a] != self.second.atoms[b] for a, b in zip(left, right, strict=True)):
            return None
        partner = dict(zip(left, right, strict=True))
        bonds = [(partner[a], partner[b]) for a, b in self.first.bonds if a in partner and b in partner]
        mates = set(right)
        partners_bonds = sum(a in mates and b in mates for a, b in self.second.bonds)
        # Every bond has its image, and the counts are equal: so the second molecule has no other bond.
        return len(left) if len(bonds) == partners_bonds and self.second.joined.issuperset(bonds) else None


register("mcs", CommonSubgraphTruth)
