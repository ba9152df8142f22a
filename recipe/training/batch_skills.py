"""Per-sample labels for the actor (skill, half of the prompts, memory) and the order of the samples in a batch."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from recipe.training.step_samples import fetch
from rewards.skills import task_of
from workers.constraints import HALF, MEMORY, SKILL
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


def by_group(batch: KVBatchMeta) -> dict[str, list[str]]:
    """The keys of each prompt's samples."""
    groups: dict[str, list[str]] = defaultdict(list)
    for key in batch.keys:
        groups[prompt_of(key)].append(key)
    return dict(groups)


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
    first: dict[str, int] = {}
    for position, (key, info) in enumerate(zip(keys, infos, strict=True)):
        accepted = info.get("acc") == 1.0 and not info.get("masked")
        if accepted and prompt_of(key) not in excluded:
            first.setdefault(prompt_of(key), position)
    return list(first.values())


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


def balanced_over_ranks(
    flags: Sequence[bool], lengths: Sequence[int], ranks: int, cells: Sequence[int] | None = None
) -> list[int]:
    """An order of the samples that gives every rank equally many of each kind, balanced by length.

    flags: True for memory, False for trained samples. lengths: tokens of each sample. cells: the pass that each belongs
    to, of which every rank gets as many as any other, or one more: ranks wait for each other. None: all are in one.

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
        for of_rank, part in zip(order, _dealt_by_cell(members, lengths, ranks, cells), strict=True):
            of_rank += sorted(part)
    return [position for of_rank in order for position in of_rank]


def _dealt_by_cell(
    members: Sequence[int], lengths: Sequence[int], ranks: int, cells: Sequence[int] | None
) -> list[list[int]]:
    """The members of each rank: of each cell the longest first, to the rank with the fewest tokens that has a seat."""
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    loads, taken = [0] * ranks, 0
    by_cell: dict[int, list[int]] = defaultdict(list)
    for member in members:
        by_cell[cells[member] if cells else 0].append(member)
    for _, cell in sorted(by_cell.items()):
        # Seats go round, on from where the last cell ended: so all cells together fill the ranks equally, too.
        seats = Counter((taken + seat) % ranks for seat in range(len(cell)))
        taken += len(cell)
        waiting = [(0, loads[rank], rank) for rank in seats]
        heapq.heapify(waiting)
        for member in sorted(cell, key=lambda one: -lengths[one]):
            of_cell, _, rank = heapq.heappop(waiting)
            dealt[rank].append(member)
            loads[rank] += lengths[member]
            seats[rank] -= 1
            if seats[rank]:
                heapq.heappush(waiting, (of_cell + lengths[member], loads[rank], rank))
    return dealt


def constraint_fields(
    names: Sequence[str], batch: KVBatchMeta, infos: Sequence[dict[str, Any]], memory: Sequence[bool]
) -> TensorDict:
    """Each sample's skill, its half, and whether it serves constraints only, as the actor reads them."""
    skills = skill_ids(names, infos)
    halves = prompt_halves(skills, [prompt_of(key) for key in batch.keys])
    return TensorDict({SKILL: skills, HALF: halves, MEMORY: torch.tensor(memory)}, batch_size=len(skills))


def order_for_constraints(batch: KVBatchMeta, fields: TensorDict, ranks: int) -> list[int]:
    """An order of the samples in which the ranks share each pass for a constraint evenly.

    fields: from `constraint_fields`. Samples without advantage are dealt apart: constraints leave them out.
    """
    if ranks == 1:
        return list(range(len(batch)))
    live = torch.tensor([bool(row.any()) for row in fetch(batch, "advantages")["advantages"].unbind()])
    cells = 4 * fields[SKILL] + 2 * fields[HALF] + live
    lengths = [tag["seq_len"] for tag in batch.tags]
    return balanced_over_ranks(fields[MEMORY].tolist(), lengths, ranks, cells.tolist())
