"""AGOP statistics: the spectrum of the average gradient outer product of the policy gradient.

With g_i the gradient of part i of a step's samples (n parts), over the trainable parameters at the start of an update:

    AGOP = 1/n sum_i g_i g_i'      a matrix of P x P, whose non-zero eigenvalues are those of the Gram matrix
    1/n <g_i, g_j>                 of n x n, which is exact, and all that is computed

Effective rank: exp of the entropy of the eigenvalues' shares (Roy & Vetterli, EUSIPCO 2007): 1 where all parts ask for
one direction, n where each asks for one of its own.
"""

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from workers.constraints import Source, constraint_gradients, negative_objective
from workers.projection import NotFiniteError, constraint_gram

PART = "agop_part"  # (B,) long, the part that a sample belongs to, -1 for none; the trainer puts it into the batch
AGOP = "skillcredit_agop"  # the field of a batch in which the trainer asks for the statistics


@dataclass(frozen=True)
class WantedAgop:
    """What the trainer asks for: the number of parts, and how many eigenvalues to report."""

    parts: int
    top: int


def agop_metrics(
    engine: Any, data: TensorDict, wanted: WantedAgop, micro_batch: dict[str, Any], group: Any
) -> dict[str, float]:
    """``agop/...`` of this update's samples, the same on every rank; collective.

    Costs a forward and a backward pass over the samples, and as many copies of the trainable parameters as parts. Not
    finite gradients have no statistics. engine, micro_batch: as for `constraint_gradients`. group: ranks with shards.
    """
    sources = [part_source(data, part) for part in range(wanted.parts)]
    gradients, _ = constraint_gradients(engine, sources, micro_batch)
    try:
        gram = constraint_gram(gradients, group)
    except NotFiniteError:
        return {}
    return spectrum(gram, wanted.top)


def part_source(data: TensorDict, part: int) -> Source:
    """This rank's samples of a part, with the advantages that they are trained on."""
    return Source(data, (torch.nonzero(data[PART] == part).flatten().tolist(), []), negative_objective)


def spectrum(gram: Tensor, top: int) -> dict[str, float]:
    """Statistics of n gradients from their inner products (n, n).

    ``agop/eigenvalue_<k>``: the largest ``top``; ``agop/trace``: their sum, the mean squared norm of a gradient;
    ``agop/effective_rank``; ``agop/agreement``: |mean gradient|^2 / trace, 1 where all are the same, 1/n where they
    have nothing in common. Gradients that are all zero have rank and agreement 0.
    """
    count = len(gram)
    average = gram.double() / count
    values = torch.linalg.eigvalsh(average).clamp(min=0).flip(0)
    trace = values.sum()
    shares = values / trace if trace > 0 else values
    rank = torch.special.entr(shares).sum().exp() if trace > 0 else trace
    numbers = {f"agop/eigenvalue_{place}": value for place, value in enumerate(values[:top].tolist(), start=1)}
    return numbers | {
        "agop/trace": float(trace),
        "agop/effective_rank": float(rank),
        "agop/agreement": float(average.sum() / count / trace) if trace > 0 else 0.0,
    }
