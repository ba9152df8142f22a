"""Weights of the worst skill and the review of mastered prompts, by hand, and their checkpoints."""

from pathlib import Path

import numpy as np
import pytest

from recipe.training.failure_buffer import MasteredPrompts
from recipe.training.schedule import PromptSchedule, make_plan, mixed_plan
from recipe.training.skill_weights import SkillWeights, zero_gradient_shares
from tests.typed_settings import settings


def weights(rate: float = 1.0, trade: float = 1.0, skills: str = "ab") -> SkillWeights:
    return SkillWeights(list(skills), rate, trade)


def test_the_weights_move_against_the_better_skill_by_hand():
    made = weights()
    made.move(np.array([1.0, 0.0]))  # p = (1/2, 1/2): p (delta - p' delta) = (1/4, -1/4)
    assert made.weights.tolist() == [-0.25, 0.25]
    assert made.shares.tolist() == pytest.approx([1 / (1 + np.exp(0.5)), 1 / (1 + np.exp(-0.5))])


def test_a_step_is_judged_by_its_gain_and_by_the_accuracy_times_the_trade():
    made = weights(trade=0.5)
    made.update({"a": 0.4, "b": 0.4}, {})  # the first step: no gain, and equal
    assert made.weights.tolist() == [0.0, 0.0]
    made.update(
        {"a": 0.8, "b": 0.4}, {}
    )  # J_a = 0.6: delta = (0.2 + 0.3, 0.2), half of whose difference times p is 0.075
    assert made.weights.tolist() == pytest.approx([-0.075, 0.075])
    made.update({}, {})  # nothing was verified: no gain, the same accuracies
    assert made.accuracy == pytest.approx({"a": 0.6, "b": 0.4})


def test_prompts_make_up_for_groups_without_gradient_by_hand():
    made = weights()
    assert made.prompts(12) == [6, 6]
    made.update({}, {"a": 0.0, "b": 0.5})
    assert made.prompts(12) == [4, 8]
    made.zero["b"] = 1.0  # ten times its share at most
    assert made.prompts(11) == [1, 10]


def test_every_skill_keeps_a_prompt_and_the_batch_its_size():
    made = weights(skills="abc")
    made.weights = np.array([50.0, 0.0, 0.0])
    assert made.prompts(7) == [5, 1, 1]
    made.weights = np.zeros(3)
    assert made.prompts(3) == [1, 1, 1]  # nothing is left to share out
    made.weights = np.array([0.1, 0.0, 0.2])
    assert [sum(made.prompts(size)) for size in range(3, 20)] == list(range(3, 20))


def test_groups_of_one_score_have_no_gradient():
    infos = [{"skill": "a", "score": score} for score in (1, 1, 0, 1)] + [{"skill": "b", "score": 0, "masked": True}]
    assert zero_gradient_shares(infos, ["p", "p", "q", "q", "r"]) == {"a": 0.5}


def weighed() -> PromptSchedule:
    plan = mixed_plan({"a": 40, "b": 40}, 12, 6)
    pools = {"a": range(40), "b": range(100, 140)}
    return PromptSchedule(plan, pools, 5, 0, weights=SkillWeights(["a", "b"], 4.0, 1.0))


def see(schedule: PromptSchedule, step: int) -> list[int]:
    """One step, in which `a` is right and `b` is not; its rows."""
    rows = schedule.at(step).rows
    infos = [{"skill": "ab"[row // 100], "acc": float(row < 100), "score": float(row < 100)} for row in rows]
    schedule.record(infos, [str(row) for row in rows], [str(row) for row in rows])
    return rows


def test_a_resumed_run_draws_the_rows_of_an_uninterrupted_one(tmp_path: Path):
    whole, first, second = weighed(), weighed(), weighed()
    expected = [see(whole, step) for step in range(1, 7)]
    counts = [sum(row >= 100 for row in rows) for rows in expected]
    assert counts[0] == 6
    assert counts[-1] > 8
    assert [see(first, step) for step in range(1, 4)] == expected[:3]
    first.save(tmp_path)
    second.load(tmp_path)
    assert [see(second, step) for step in range(4, 7)] == expected[3:]
    assert second.at(5).rows == expected[4]
    assert len({row for rows in expected[:4] for row in rows}) == 48  # none twice while a pool lasts


def results(skill: str, /, **right: int) -> list[tuple[str, str, bool | None]]:
    """Of each task, so many of 8 samples are right."""
    return [(skill, task, number < count) for task, count in right.items() for number in range(8)]


def test_a_prompt_is_mastered_when_every_sample_is_right_and_no_more_when_one_fails():
    mastered = MasteredPrompts(2)
    mastered.record(results("s", a=8, b=7))
    assert mastered.of("s") == ["a"]
    mastered.record(results("s", a=7))
    assert mastered.of("s") == []
    mastered.record([("s", "c", True), ("s", "c", None)])  # one was not verified: not known to be right
    assert mastered.of("s") == []


def test_the_oldest_mastered_prompt_goes_first_and_each_skill_has_its_own():
    mastered = MasteredPrompts(2)
    for task in "abc":
        mastered.record(results("s", **{task: 8}))
    mastered.record(results("t", x=8))
    mastered.record(results("s", b=8))  # right again: it stays in its place
    assert (mastered.of("s"), mastered.of("t"), mastered.of("u")) == (["b", "c"], ["x"], [])
    again = MasteredPrompts(2)
    again.restore(mastered.state())
    assert again.state() == mastered.state()


def test_replay_takes_mastered_prompts_in_turn_and_what_is_missing_from_the_store(tmp_path: Path):
    plan = make_plan(settings({"method": "off"}, skill_sequence=["a", "b"], replay_share=0.5), 8)
    assert plan is not None
    pools = {"a": range(40), "b": range(100, 140)}
    row_of = {f"t{row}": row for row in range(40)}
    made, again = (
        PromptSchedule(plan, pools, 5, 0, mastered=MasteredPrompts(9), row_of=row_of) for _ in range(2)
    )  # fmt: skip
    step = plan.steps  # in the second stage: 4 prompts of `a` are replayed
    stored = [row for row in made.at(step).rows if row < 100]
    assert len(stored) == 4
    assert made.mastered is not None
    made.mastered.record(results("a", t30=8, t31=8, gone=8))
    replayed = [row for row in made.at(step).rows if row < 100]
    assert sorted(replayed)[-2:] == [30, 31]
    assert len({*replayed} & {*stored}) >= 2
    made.mastered.record(results("a", **{f"t{stored[0]}": 8}))  # it is in the store, too
    assert len({row for row in made.at(step).rows if row < 100}) == 4
    made.mastered.record(results("a", **{f"t{stored[0]}": 7}))
    made.mastered.record(results("a", **{f"t{row}": 8 for row in range(32, 38)}))
    turns = [{row for row in made.at(number).rows if row < 100} for number in (step - 1, step)]
    assert turns[0] != turns[1]
    assert turns[0] | turns[1] == set(range(30, 38))
    made.save(tmp_path)
    again.load(tmp_path)
    assert again.at(step) == made.at(step)


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ({"kind": "mixed", "weights": "worst"}, "every_skill=true"),
        ({"weights": "worst"}, "needs protocol=mixed"),
        ({"replay_from": "mastered"}, "replays nothing: set protocol.replay_share"),
    ],
)
def test_choices_without_effect_are_refused(protocol: dict, message: str):
    with pytest.raises(ValueError, match=message):
        settings({"method": "off"}, **protocol)
