"""Angles between the constraint gradients of an update, over all parameters and in each type of module."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from workers.projection import constraint_gram


@dataclass(frozen=True)
class Angles:
    """Inner products (S, S) of an update's constraint gradients, over all parameters and per type of module."""

    names: Sequence[str]
    modules: dict[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(names: Sequence[str], constraints: Sequence[Tensor], modules: Sequence[str], group: Any) -> "Angles":
        """modules: the type of module that each parameter belongs to, the same on every rank.

        Raises:
            NotFiniteError: NaN or infinity in the gradients of any rank.
        """
        parts = defaultdict(list)
        for block, module in zip(constraints, modules, strict=True):
            parts[module].append(block)
        return Angles(names, {module: constraint_gram(blocks, group) for module, blocks in parts.items()})

    @property
    def gram(self) -> Tensor:
        return torch.stack(list(self.modules.values())).sum(0)

    def metrics(self) -> dict[str, float]:
        """``projection/pair_cosine/<a>~<b>``, and the same under ``projection/module_cosine/<module>/``.

        Pairs with a gradient of zero are left out.
        """
        numbers = {f"projection/pair_cosine/{pair}": value for pair, value in self._cosines(self.gram)}
        for module, gram in self.modules.items():
            numbers |= {f"projection/module_cosine/{module}/{pair}": value for pair, value in self._cosines(gram)}
        return numbers

    def _cosines(self, gram: Tensor) -> Iterator[tuple[str, float]]:
        for one, other in combinations(range(len(self.names)), 2):
            size = math.sqrt(float(gram[one, one] * gram[other, other]))
            if size > 0:
                yield f"{self.names[one]}~{self.names[other]}", float(gram[one, other]) / size
