"""Which skill, half and part of the batch each sample of a step belongs to, as the actor's numbers."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from transfer_queue import KVBatchMeta
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions


def skill_ids(names: Sequence[str], infos: Sequence[dict[str, Any]]) -> torch.Tensor:
    """(B,) place of each sample's skill in ``names``, -1 for another, and for a sample that could not be verified."""
    return torch.tensor(
        [names.index(info["skill"]) if info.get("skill") in names and not info.get("masked") else -1 for info in infos]
    )


def prompt_halves(skills: torch.Tensor, prompts: Sequence[str]) -> torch.Tensor:
    """(B,) 0 or 1: the prompts of each skill in turn, so that a skill's gradient can be checked against itself."""
    seen: dict[int, dict[str, int]] = defaultdict(dict)
    return torch.tensor(
        [
            seen[skill].setdefault(prompt, len(seen[skill])) % 2
            for skill, prompt in zip(skills.tolist(), prompts, strict=True)
        ]
    )


def prompt_of(key: str) -> str:
    """The prompt's own name in a sample's key ``{uid}_{session}_{index}``."""
    return key.split("_")[0]


def memory_flags(batch: KVBatchMeta, prompts: set[str], planned: int) -> list[bool]:
    """Samples of memory prompts; where some are missing, verl's padding samples stand in for them."""
    flags = [prompt_of(key) in prompts for key in batch.keys]
    for position, tag in enumerate(batch.tags):
        if sum(flags) >= planned:
            break
        flags[position] = flags[position] or bool(tag.get("is_padding"))
    return flags


def dealt_over_ranks(flags: Sequence[bool], lengths: Sequence[int], ranks: int) -> list[int]:
    """An order of the samples in which every rank gets as many of either kind as the others, balanced by length.

    Raises:
        ValueError: a kind's samples do not divide by the ranks.
    """
    order: list[list[int]] = [[] for _ in range(ranks)]
    for kind in (False, True):
        members = [position for position, flag in enumerate(flags) if flag == kind]
        if len(members) % ranks:
            raise ValueError(
                f"{len(members)} {'memory' if kind else 'trained'} samples do not divide over {ranks} ranks"
            )
        if members:
            parts = get_seqlen_balanced_partitions([lengths[place] for place in members], ranks, equal_size=True)
            for own, part in zip(order, parts, strict=True):
                own += [members[place] for place in part]
    return [position for own in order for position in own]
