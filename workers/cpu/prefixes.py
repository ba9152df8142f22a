"""Tokens of packed sequences whose prefixes are equal, so that a pass computes each of them once.

The samples of a group repeat their prompt. In a causal model a token's states depend on the tokens up to it alone: one
state serves all samples, and its gradient is the sum of theirs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Branches:
    """How B sequences are made of U rows of states: each one's rows begin with those of a prefix that an earlier
    sequence has, and end with its own.

    rows: (their total length), of one sequence after the other. before, own: (B) lengths. A sequence's own rows follow
    those of the sequence before.
    """

    rows: Tensor
    before: list[int]
    own: list[int]

    @property
    def lengths(self) -> list[int]:
        """Of the sequences."""
        return [before + own for before, own in zip(self.before, self.own, strict=True)]


@dataclass(frozen=True)
class SharedPrefixes:
    """The U distinct prefixes of T packed tokens, each a row of states.

    kept: (U), the packed position of each one's last token where it occurs first. rows: (T), each token's row.
    branches: the sequences that have separate rows.
    """

    kept: Tensor
    rows: Tensor
    branches: Branches


def shared_prefixes(input_ids: Tensor, position_ids: Tensor) -> SharedPrefixes:
    """Find equal prefixes. input_ids, position_ids: (T), positions start at 0 in each sequence and rise by 1."""
    known: dict[tuple[int, int], int] = {}  # a prefix's row, by the row of all but its last token and by this token
    kept: list[int] = []
    rows: list[int] = []
    row = -1
    for index, (token, position) in enumerate(zip(input_ids.tolist(), position_ids.tolist(), strict=True)):
        row = known.setdefault((-1 if position == 0 else row, token), len(known))
        rows.append(row)
        if row == len(kept):
            kept.append(index)
    row_of = torch.tensor(rows)
    return SharedPrefixes(torch.tensor(kept), row_of, _branches(row_of, position_ids))


def separate_sequences(position_ids: Tensor) -> Branches:
    """Sequences that share nothing. position_ids: (T)."""
    return _branches(torch.arange(len(position_ids)), position_ids)


def _branches(rows: Tensor, position_ids: Tensor) -> Branches:
    starts = torch.nonzero(position_ids == 0).flatten()[1:]
    kept: list[Tensor] = []
    own: list[int] = []
    for sequence in rows.tensor_split(starts):
        new = int(sequence[-1]) + 1 - sum(own)
        if new > 0:  # else an earlier sequence begins with this one
            kept.append(sequence)
            own.append(new)
    before = [len(sequence) - new for sequence, new in zip(kept, own, strict=True)]
    return Branches(torch.cat(kept), before, own)
