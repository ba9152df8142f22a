from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.settings import SettingsError
from recipe.training.schedule import PromptPlan, PromptSchedule, deal, make_plan, mixed_plan
from tests.typed_settings import settings

BATCH = 16


def plan(projection: dict | None = None, **protocol) -> PromptPlan:
    made = make_plan(settings(projection, **protocol), BATCH)
    assert made is not None
    return made


def schedule(made: PromptPlan, rows: int = 40, store: int = 5, seed: int = 0) -> PromptSchedule:
    pools = {skill: range(100 * number, 100 * number + rows) for number, skill in enumerate(made.skills)}
    return PromptSchedule(made, pools, store, seed)


def test_mixed_has_no_plan():
    assert make_plan(settings(kind="mixed"), BATCH) is None


def test_a_stage_trains_its_skill_and_keeps_memory_of_the_earlier_ones_within_the_batch():
    made = plan()
    assert made.steps == 30
    assert made.fresh[[0, 10, 20]].tolist() == [[16, 0, 0], [0, 13, 0], [0, 0, 10]]
    assert made.memory[[0, 10, 20]].tolist() == [[0, 0, 0], [3, 0, 0], [3, 3, 0]]
    assert [made.guarded(step) for step in (1, 11, 30)] == [[], ["a"], ["a", "b"]]
    assert [made.just_finished(step) for step in (1, 10, 11, 12, 21)] == [[], [], ["a"], [], ["b"]]


def test_every_step_has_as_many_prompts_as_the_batch_in_every_protocol():
    protocols: tuple[dict[str, Any], ...] = (
        {},
        {"kind": "curriculum", "levels": [["a"], ["b", "c"]]},
        {"kind": "curriculum", "levels": [["a"], ["b"], ["c"]], "mixing": "linear"},
    )
    for options in ({}, {"replay_share": 0.3}, {"refresh_steps": 4}, {"replay_share": 0.3, "refresh_steps": 4}):
        for stages in protocols:
            made = plan(**options, **stages)
            assert ((made.fresh + made.stored + made.memory).sum(1) == BATCH).all()
            assert min(made.fresh.min(), made.stored.min(), made.memory.min()) >= 0


@pytest.mark.parametrize("source", ["rollouts", "solutions", "both"])
def test_memory_is_sampled_only_where_a_constraint_is_made_of_it(source: str):
    assert bool(plan({"constraint_source": source}).memory.any()) == (source != "solutions")


def test_skills_that_are_named_are_protected_from_the_first_step_wherever_they_are_not_trained():
    made = plan({"protected": ["c"]})
    assert made.protected == [["c"], ["c"], []]
    assert made.memory[[0, 10, 20]].tolist() == [[0, 0, 3], [0, 0, 3], [0, 0, 0]]
    of_the_base_model = plan({"protected": ["c", "a"]}, skill_sequence=["a", "b"])
    assert of_the_base_model.skills == ["a", "b", "c"]
    assert of_the_base_model.protected == [["c"], ["a", "c"]]
    assert of_the_base_model.memory[[0, 10]].tolist() == [[0, 0, 3], [3, 0, 3]]


def test_without_projection_nothing_is_guarded():
    assert plan({"method": "off", "protected": ["c"]}).protected == [[], [], []]


@pytest.mark.parametrize(
    ("projection", "protocol", "message"),
    [
        ({}, {"skill_sequence": ["a"]}, "projection=qp would protect nothing"),
        ({}, {"kind": "curriculum", "levels": [["a", "b"], ["a", "b", "c"]]}, "projection=qp would protect nothing"),
        (
            {"protected": ["c"], "constraint_source": "solutions"},
            {"skill_sequence": ["a", "b"]},
            "no accepted solutions",
        ),
        ({"protected": ["a", "b"]}, {"skill_sequence": ["a"]}, r"names \['a'\], which every stage trains"),
    ],
)
def test_protection_that_never_protects_is_refused(projection: dict, protocol: dict, message: str):
    with pytest.raises(SettingsError, match=message):
        plan(projection, **protocol)


def test_replay_shares_what_is_trained_over_the_earlier_skills_and_leaves_no_rounding_behind():
    made = plan({"method": "off"}, replay_share=0.3)
    assert set(map(tuple, made.stored[10:20].tolist())) == {(5, 0, 0), (4, 0, 0)}
    assert made.stored[10:20].sum(0).tolist() == [48, 0, 0]  # 0.3 x 16 x 10
    assert made.stored[20:].sum(0).tolist() == [24, 24, 0]
    assert not made.stored[:10].any()
    assert plan({"method": "off"}, replay_share=0.03).stored.sum() == pytest.approx(0.03 * 16 * 20, abs=1)


def test_refresh_trains_all_skills_in_the_last_steps_of_the_last_stage():
    made = plan({"method": "off"}, refresh_steps=3)
    assert made.fresh[-4].tolist() == [0, 0, 16]
    assert made.stored[-3:].sum(0).tolist() == [16, 16, 0]
    assert made.fresh[-3:].sum(0).tolist() == [0, 0, 16]


def test_a_linear_curriculum_passes_from_level_to_level():
    made = plan({"method": "off"}, kind="curriculum", levels=[["a"], ["b", "c"]], mixing="linear")
    assert made.fresh[0].tolist() == [16, 0, 0]
    assert made.fresh[-1].tolist() == [0, 8, 8]
    assert made.fresh.sum(0) == pytest.approx([160, 80, 80], abs=1)
    assert (np.diff(made.fresh[:, 0]) <= 1).all()


def test_dealt_numbers_follow_their_weights_within_one():
    rng = np.random.default_rng(0)
    weights, totals = rng.random((200, 5)), rng.integers(0, 9, 200)
    counts = deal(weights, totals)
    assert (counts.sum(1) == totals).all()
    owed = np.cumsum(weights / weights.sum(1, keepdims=True) * totals[:, None] - counts, axis=0)
    assert np.abs(owed).max() < 2


@pytest.mark.slow
@given(sizes=st.lists(st.integers(1, 500), min_size=1, max_size=6), spare=st.integers(0, 20))
def test_every_batch_has_all_skills_and_each_its_share_over_the_steps(sizes: list[int], spare: int):
    batch, steps = len(sizes) + spare, 40
    made = mixed_plan(dict(zip("abcdef", sizes, strict=False)), batch, steps)
    assert (made.fresh.sum(1) == batch).all()
    assert made.fresh.min() >= 1
    shares = np.array(sizes) / sum(sizes) * batch
    if (shares >= 1).all():
        assert made.fresh.sum(0) == pytest.approx(shares * steps, abs=2)


@pytest.mark.parametrize("baseline", [{"replay_share": 0.5}, {"refresh_steps": 3}])
def test_old_and_new_prompts_of_a_step_are_not_in_the_order_of_skills(baseline: dict):
    drawn = schedule(plan({"method": "off"}, **baseline))
    for step in range(28, 31):
        skills = [row // 100 for row in drawn.at(step).rows]
        assert set(skills) == {0, 1, 2}
        assert skills != sorted(skills)


def test_several_skills_of_a_step_are_not_in_the_order_of_skills():
    """If a batch were cut into mini-batches, each would be of one skill."""
    drawn = schedule(mixed_plan(dict.fromkeys("abc", 40), BATCH, 9))
    for step in range(1, 10):
        skills = [row // 100 for row in drawn.at(step).rows]
        assert np.bincount(skills).min() >= 5
        assert skills != sorted(skills)
        assert drawn.at(step) == drawn.at(step)
    rows = [row for step in range(1, 8) for row in drawn.at(step).rows]
    assert len(set(rows)) == len(rows)  # no row repeats before a skill is exhausted


def test_fewer_prompts_than_skills_cannot_have_one_of_each():
    with pytest.raises(SettingsError, match="is too small for a prompt of each of 3 skills"):
        mixed_plan(dict.fromkeys("abc", 10), 2, 1)


def test_a_batch_that_memory_fills_is_refused():
    with pytest.raises(SettingsError, match="leaves no new prompt to train on in stage 3: 16 are memory prompts"):
        plan(memory_per_protected=8)


def test_replay_that_leaves_no_new_prompt_is_refused():
    with pytest.raises(SettingsError, match="stage 2: 0 are memory prompts and 16 replayed ones"):
        plan({"method": "off"}, replay_share=0.99)
    plan({"method": "off"}, refresh_steps=10)  # the last stage trains on `stores`


@pytest.mark.parametrize(
    ("protocol", "projection", "penalty", "message"),
    [
        (
            {"skill_sequence": ["a", "x"]},
            {},
            {},
            r"protocol.skill_sequence names \['x'\], which are not in skills.names",
        ),
        ({"kind": "curriculum", "levels": [["a"], []]}, {}, {}, "a level without one"),
        ({"kind": "curriculum", "levels": [["a", "a"]]}, {}, {}, "a skill twice in one level"),
        ({"memory_per_protected": 0}, {}, {}, "leaves the protected skills without samples"),
        ({"refresh_steps": 11}, {}, {}, "are taken from the last stage"),
        ({"kind": "mixed", "replay_share": 0.5}, {}, {}, "protocol.replay_share needs stages"),
        ({"kind": "mixed"}, {}, {"kind": "ewc", "strength": 1}, "penalty needs stages"),
        ({}, {}, {"kind": "l2"}, "no effect with penalty.strength=0"),
        ({}, {}, {"kind": "l2", "strength": float("inf")}, "finite number"),
        ({}, {"method": "pcgrad", "epsilon": 0.1}, {}, "does not support slack"),
        ({}, {"epsilon": float("nan")}, {}, "must be a finite number"),
    ],
)
def test_what_cannot_be_done_is_refused_before_training(protocol, projection, penalty, message: str):
    with pytest.raises(ValueError, match=message):
        settings(projection, penalty, **protocol)


def test_a_skill_that_no_row_has_is_refused_when_the_data_are_read():
    with pytest.raises(SettingsError, match=r"names \['b'\], for which data.train_files have no row"):
        PromptSchedule(plan(), {"a": [0], "b": [], "c": [1]}, 5, 0)


def test_rows_come_without_repetition_until_a_skill_is_used_up():
    made = plan({"method": "off"})
    rows = [row for step in range(1, 11) for row in schedule(made).at(step).rows]
    assert all(sorted(rows[start : start + 40]) == list(range(40)) for start in range(0, 160, 40))
    assert rows[:40] != rows[40:80]


def test_memory_comes_from_a_small_store_that_stays_the_same():
    drawn = schedule(plan())
    memory = [row for step in range(11, 31) for row, kept in zip(*vars(drawn.at(step)).values(), strict=True) if kept]
    assert len({row for row in memory if row < 100}) == 5
    assert len(memory) == 10 * 3 + 10 * 6
    counts = np.bincount([row for row in memory if row < 100])
    assert set(counts[counts > 0]) == {60 // 5}


def test_a_step_has_the_same_prompts_whatever_was_drawn_before_it():
    made = plan(replay_share=0.25)
    first = schedule(made)
    for step in range(1, 17):
        first.at(step)
    assert first.at(17) == schedule(made).at(17)
    assert first.at(17) != schedule(made, seed=1).at(17)
    with pytest.raises(IndexError, match="step 31 is not in the plan of 30 steps"):
        first.at(31)
