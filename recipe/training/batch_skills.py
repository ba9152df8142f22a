"""Per-sample labels for the actor (skill, half of the prompts, memory) and the order of the samples in a batch."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from transfer_queue import KVBatchMeta
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions

from recipe.training.samples import fetch
from rewards.skills import task_of
from workers.solution_store import StoredSolution


def skill_ids(names: Sequence[str], infos: Sequence[dict[str, Any]]) -> torch.Tensor:
    """(B,) index of each sample's skill in ``names``; -1 for any other skill and for unverified samples."""
    return torch.tensor(
        [names.index(info["skill"]) if info.get("skill") in names and not info.get("masked") else -1 for info in infos]
    )


def prompt_halves(skills: torch.Tensor, prompts: Sequence[str]) -> torch.Tensor:
    """(B,) 0 or 1, alternating over each skill's prompts, so that a skill's gradient can be checked against itself."""
    seen: dict[int, dict[str, int]] = defaultdict(dict)
    return torch.tensor(
        [
            seen[skill].setdefault(prompt, len(seen[skill])) % 2
            for skill, prompt in zip(skills.tolist(), prompts, strict=True)
        ]
    )


def prompt_of(key: str) -> str:
    """The prompt's uid in a sample's key ``{uid}_{session}_{index}``."""
    return key.split("_")[0]


def by_prompt(keys: Sequence[str], order: Mapping[str, int]) -> list[int]:
    """Positions of the samples in the order in which their prompts were submitted, within a prompt by number.

    Samples arrive in the order in which they finish, which differs between runs and would change the order of sums
    and the mini-batches.
    """

    def place(position: int) -> tuple[int, list[int]]:
        prompt, *numbers = keys[position].split("_")
        return order[prompt], list(map(int, numbers))

    return sorted(range(len(keys)), key=place)


def memory_flags(batch: KVBatchMeta, prompts: set[str], answers: int) -> list[bool]:
    """Whether each sample (B) belongs to a memory prompt; verl's padding samples fill in for missing ones.

    answers: samples per prompt. The choice of padding does not depend on the order of the batch, so that all ranks
    leave out equally many samples.
    """
    flags = [prompt_of(key) in prompts for key in batch.keys]
    missing = len(prompts) * answers - sum(flags)
    padding = [position for position, tag in enumerate(batch.tags) if tag.get("is_padding") and not flags[position]]
    for position in sorted(padding, key=batch.keys.__getitem__)[: max(missing, 0)]:
        flags[position] = True
    return flags


def first_accepted(keys: Sequence[str], infos: Sequence[dict[str, Any]], excluded: set[str]) -> list[int]:
    """Positions of each prompt's first sample that the verifier accepted, without the excluded prompts."""
    found: dict[str, int] = {}
    for position, (key, info) in enumerate(zip(keys, infos, strict=True)):
        accepted = info.get("acc") == 1.0 and not info.get("masked")
        if accepted and prompt_of(key) not in excluded:
            found.setdefault(prompt_of(key), position)
    return list(found.values())


def accepted_solutions(
    batch: KVBatchMeta, infos: Sequence[dict[str, Any]], excluded: set[str]
) -> Iterator[tuple[str, str, StoredSolution]]:
    """Skill, task and tokens of each prompt's first accepted sample in a step.

    excluded: prompts whose samples are not trained on.
    """
    positions = first_accepted(batch.keys, infos, excluded)
    if not positions:
        return
    fields = ("prompts", "responses", "response_mask")
    data = fetch(batch, *fields, "extra_info", keys=[batch.keys[position] for position in positions])
    for row, (position, info) in enumerate(zip(positions, list(data["extra_info"]), strict=True)):
        yield infos[position]["skill"], task_of(info), StoredSolution(*(data[field][row].tolist() for field in fields))


def dealt_over_ranks(flags: Sequence[bool], lengths: Sequence[int], ranks: int) -> list[int]:
    """An order of the samples that gives every rank equally many of each kind, balanced by length.

    flags: True for memory, False for trained samples. lengths: tokens of each sample.

    Raises:
        ValueError: the samples of a kind do not divide evenly over the ranks.
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
