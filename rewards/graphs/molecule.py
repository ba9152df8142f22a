"""Molecules as ground truths hold them: graphs whose nodes are numbered and carry an element."""

from functools import cached_property
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

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
