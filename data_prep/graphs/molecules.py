"""Random molecules without hydrogen: pieces of known molecules if rdkit is installed, else random constructions."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from data_prep.graphs.molecule_search import Ints

# Maximum number of bonds per element, and its frequency: about as in small drugs.
_VALENCES = {"C": 4, "N": 3, "O": 2, "S": 2, "F": 1}
_WEIGHTS = (70, 12, 12, 3, 3)
_RINGS = range(3, 6)

# Diazepam, testosterone, morphine, warfarin, penicillin G, quinine, omeprazole, ciprofloxacin, cholesterol, sildenafil,
# imatinib: each has at least 20 atoms.
_KNOWN = (
    "CN1C(=O)CN=C(C2=C1C=CC(=C2)Cl)C3=CC=CC=C3",
    "CC12CCC3C(C1CCC2O)CCC4=CC(=O)CCC34C",
    "CN1CCC23C4C1CC5=C2C(=C(C=C5)O)OC3C(C=C4)O",
    "CC(=O)CC(C1=CC=CC=C1)C2=C(C3=CC=CC=C3OC2=O)O",
    "CC1(C(N2C(S1)C(C2=O)NC(=O)CC3=CC=CC=C3)C(=O)O)C",
    "COC1=CC2=C(C=CN=C2C=C1)C(C3CC4CCN3CC4C=C)O",
    "CC1=CN=C(C(=C1OC)C)CS(=O)C2=NC3=C(N2)C=C(C=C3)OC",
    "C1CC1N2C=C(C(=O)C3=CC(=C(C=C32)N4CCNCC4)F)C(=O)O",
    "CC(C)CCCC(C)C1CCC2C1(CCC3C2CC=C4C3(CCC(C4)O)C)C",
    "CCCC1=NN(C2=C1N=C(NC2=O)C3=C(C=CC(=C3)S(=O)(=O)N4CCN(CC4)C)OCC)C",
    "CC1=C(C=C(C=C1)NC(=O)C2=CC=C(C=C2)CN3CCN(CC3)C)NC4=NC=CC(=N4)C5=CN=CC=C5",
)


@dataclass(frozen=True)
class RandomMolecule:
    """Elements of the atoms, numbered from 0, and the pairs of atoms that a bond of any order joins."""

    atoms: list[str]
    bonds: list[tuple[int, int]]

    def truth(self) -> dict[str, Any]:
        """The molecule as a field of a ground truth."""
        return {"atoms": self.atoms, "bonds": [list(bond) for bond in self.bonds]}

    def text(self) -> str:
        """The molecule as text for a prompt."""
        atoms = ", ".join(f"{number}:{element}" for number, element in enumerate(self.atoms))
        return f"atoms {atoms}; bonds {', '.join(f'{left}-{right}' for left, right in self.bonds)}"

    def masks(self, elements: list[str]) -> tuple[Ints, Ints]:
        """The molecule for the searches: the index of each atom's element in `elements`, and its neighbours as bits."""
        neighbours = np.zeros(len(self.atoms), np.int64)
        for left, right in self.bonds:
            neighbours[left] |= 1 << right
            neighbours[right] |= 1 << left
        return np.array([elements.index(element) for element in self.atoms]), neighbours


def built(rng: random.Random, size: int) -> RandomMolecule:
    """A molecule that respects valences: a tree, grown atom by atom, with up to two rings."""
    while True:
        atoms = rng.choices(list(_VALENCES), _WEIGHTS, k=size)
        free = [_VALENCES[element] for element in atoms]
        bonds: list[tuple[int, int]] = []
        for atom in range(1, size):
            if not (open_atoms := [earlier for earlier in range(atom) if free[earlier]][-4:]):
                break
            _join(rng.choice(open_atoms), atom, bonds, free)
        else:
            break
    for _ in range(rng.randint(0, 2)):
        pairs = [(left, right) for right in range(size) for left in range(right) if free[left] and free[right]]
        rings = [pair for pair in pairs if pair[1] - pair[0] in _RINGS and pair not in bonds]
        if rings:
            _join(*rng.choice(rings), bonds, free)
    return _renumbered(rng, atoms, bonds)


def _join(left: int, right: int, bonds: list[tuple[int, int]], free: list[int]) -> None:
    bonds.append((left, right))
    free[left] -= 1
    free[right] -= 1


def cut_out(rng: random.Random, size: int) -> RandomMolecule:
    """A connected piece of a known molecule, with `size` atoms (at most 20). Needs rdkit."""
    atoms, neighbours = rng.choice(_known())
    piece = [rng.randrange(len(atoms))]
    while len(piece) < size:
        border = sorted({far for near in piece for far in neighbours[near]} - set(piece))
        piece.append(rng.choice(border))
    place = {atom: number for number, atom in enumerate(piece)}
    bonds = [(place[a], place[b]) for a in piece for b in neighbours[a] if a < b and b in place]
    return _renumbered(rng, [atoms[atom] for atom in piece], bonds)


@cache
def _known() -> list[tuple[list[str], list[list[int]]]]:
    from rdkit import Chem

    molecules = [Chem.MolFromSmiles(text) for text in _KNOWN]
    return [
        (
            [atom.GetSymbol() for atom in molecule.GetAtoms()],
            [[other.GetIdx() for other in atom.GetNeighbors()] for atom in molecule.GetAtoms()],
        )
        for molecule in molecules
    ]


def _renumbered(rng: random.Random, atoms: list[str], bonds: list[tuple[int, int]]) -> RandomMolecule:
    """The same molecule with its atoms and bonds in random order, so that the numbers carry no information."""
    order = rng.sample(range(len(atoms)), len(atoms))
    place = {atom: number for number, atom in enumerate(order)}
    named = [(min(place[a], place[b]), max(place[a], place[b])) for a, b in bonds]
    return RandomMolecule([atoms[atom] for atom in order], rng.sample(named, len(named)))


ORIGINS: dict[str, Callable[[random.Random, int], RandomMolecule]] = {"built": built, "cut_out": cut_out}


def origin_here() -> str:
    """The origin of molecules on this machine, a name of ORIGINS."""
    return "cut_out" if find_spec("rdkit") else "built"
