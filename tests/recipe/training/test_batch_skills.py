from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transfer_queue import KVBatchMeta

from recipe.training import batch_skills
from recipe.training.batch_skills import (
    balanced_over_ranks,
    by_prompt,
    constraint_fields,
    first_accepted,
    memory_flags,
    order_for_constraints,
    prompt_halves,
    skill_ids,
)
from workers.constraints import HALF, SKILL


def test_samples_are_numbered_by_skill_and_those_that_were_not_verified_belong_to_none():
    infos: list[dict[str, Any]] = [
        {"skill": "sql"},
        {"skill": "poetry"},
        {"skill": "write", "masked": 1.0},
        {"skill": "write"},
        {},
    ]
    assert skill_ids(["write", "sql"], infos).tolist() == [1, -1, -1, 0, -1]


def test_all_samples_of_a_prompt_are_in_the_same_half_and_halves_alternate_within_a_skill():
    skills = torch.tensor([0, 0, 1, 0, 0, 1, 0])
    assert prompt_halves(skills, ["a", "a", "b", "c", "a", "d", "e"]).tolist() == [0, 0, 0, 1, 0, 1, 0]


@pytest.mark.slow
@given(st.permutations([f"{uid}_{session}_0" for uid in ("b", "a", "c") for session in (0, 2, 10)]))
def test_a_batch_is_in_one_order_whichever_samples_were_finished_first(finished):
    order = by_prompt(finished, {"b": 3, "a": 4, "c": 7, "z": 5})
    assert [finished[place] for place in order] == [f"{uid}_{session}_0" for uid in "bac" for session in (0, 2, 10)]


def batch(*prompts: str) -> KVBatchMeta:
    keys = [f"{prompt}_{number}_0" for number, prompt in enumerate(prompts)]
    return KVBatchMeta(partition_id="train", keys=keys, tags=[{"is_padding": p.startswith("pad")} for p in prompts])


def test_padding_stands_in_for_memory_samples_that_failed():
    assert memory_flags(batch("a", "m", "pad1", "m", "pad1"), {"m"}, 3) == [False, True, True, True, False]
    assert memory_flags(batch("a", "m", "b"), {"m"}, 1) == [False, True, False]
    assert memory_flags(batch("a", "pad1"), set(), 8) == [False, False]


@pytest.mark.slow
@given(st.permutations(range(6)))
def test_the_same_padding_stands_in_whatever_the_order(order):
    step = batch("a", "pad1", "m", "pad1", "pad2", "b")
    flagged = dict(zip(step.keys, memory_flags(step, {"m"}, 3), strict=True))
    step.reorder(list(order))
    assert dict(zip(step.keys, memory_flags(step, {"m"}, 3), strict=True)) == flagged
    assert sum(flagged.values()) == 3


def test_the_first_accepted_answer_of_each_trained_prompt_is_kept():
    keys = ["a_0_0", "a_1_0", "a_2_0", "m_0_0", "b_0_0", "pad1_0_0"]
    infos = [{"acc": 0.0}, {"acc": 1.0}, {"acc": 1.0}, {"acc": 1.0}, {"acc": 1.0, "masked": 1.0}, {}]
    assert first_accepted(keys, infos, {"m"}) == [1]


def test_every_rank_gets_as_many_of_either_kind():
    flags = [True, False, False, True, False, False]
    order = balanced_over_ranks(flags, [5, 9, 1, 5, 1, 9], 2)
    assert sorted(order) == list(range(6))
    assert [[flags[place] for place in own] for own in (order[:3], order[3:])] == [[False, False, True]] * 2
    lengths = [9 + 1, 9 + 1]
    assert [sum([5, 9, 1, 5, 1, 9][place] for place in own[:2]) for own in (order[:3], order[3:])] == lengths
    with pytest.raises(ValueError, match="3 memory samples do not divide over 2 ranks"):
        balanced_over_ranks([True, True, True, False, False], [1] * 5, 2)


@pytest.mark.slow
@pytest.mark.parametrize("skills", [4, 8])
@pytest.mark.parametrize("ranks", [1, 8, 16, 32])
def test_padding_costs_at_most_a_fifth_of_the_passes_for_constraints(
    skills: int, ranks: int, monkeypatch: pytest.MonkeyPatch
):
    """128 prompts, every other one without advantage, with 8 samples of very unlike lengths."""
    generator = torch.Generator().manual_seed(0)
    of_prompts = torch.randint(skills, (128,), generator=generator).tolist()
    lengths = (300 * torch.randn(1024, generator=generator).exp()).int().clamp(16, 8192).tolist()
    live = torch.arange(1024) // 8 % 2
    monkeypatch.setattr(batch_skills, "fetch", lambda batch, field: {field: live[:, None]})
    keys = [f"{number // 8}_{number % 8}_0" for number in range(1024)]
    step = KVBatchMeta(partition_id="train", keys=keys, tags=[{"seq_len": length} for length in lengths])
    infos = [{"skill": str(of_prompts[number // 8])} for number in range(1024)]
    fields = constraint_fields([*map(str, range(skills))], step, infos, [False] * 1024)
    order = order_for_constraints(step, fields, ranks)
    assert sorted(order) == list(range(1024))
    counts = torch.zeros(2 * skills, ranks)
    for place, one in enumerate(order):
        counts[2 * fields[SKILL][one] + fields[HALF][one], place * ranks // 1024] += live[one]
    assert (counts.amax(1) - counts.amin(1)).max() <= 1
    padding = float((counts.amax(1, keepdim=True) - counts).sum())
    assert padding * 16 <= 0.2 * sum(length for length, counted in zip(lengths, live, strict=True) if counted)
    if skills * ranks <= 128:  # with fewer samples of a pass than three on a rank there is more padding, all short
        assert padding <= 0.2 * float(live.sum())
