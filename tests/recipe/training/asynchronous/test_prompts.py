"""Prompts drawn one by one: in the plan's order, also after a restart, each with its place in the plan."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from recipe.training.asynchronous.prompts import DrawnPrompt, PromptStream, place_metrics, version_metrics
from recipe.training.schedule import StepPrompts

STEPS = [
    StepPrompts([5, 1], [False, False]),
    StepPrompts([2, 7], [False, True]),
    StepPrompts([4, 0], [False, True]),
]


def stream() -> PromptStream:
    schedule: Any = SimpleNamespace(plan=SimpleNamespace(steps=len(STEPS)), at=lambda step: STEPS[step - 1])
    return PromptStream(schedule)


def drawn(prompts: PromptStream, count: int) -> list[tuple[int, DrawnPrompt]]:
    return [prompts.draw() for _ in range(count)]


def test_rows_come_in_the_order_of_the_plan_with_step_number_and_memory_flag():
    assert drawn(stream(), 4) == [
        (5, DrawnPrompt(0, 1)),
        (1, DrawnPrompt(1, 1)),
        (2, DrawnPrompt(2, 2)),
        (7, DrawnPrompt(3, 2, memory=True)),
    ]


def test_what_is_drawn_past_the_plan_is_its_last_step_under_new_numbers():
    rows = drawn(stream(), 8)
    assert [row for row, _ in rows[4:]] == [4, 0, 4, 0]
    assert [place.step for _, place in rows[4:]] == [3, 3, 3, 3]
    assert [place.number for _, place in rows] == list(range(8))


def test_a_restart_in_the_middle_of_a_step_draws_what_would_have_come_next(tmp_path: Path):
    whole, first, second = stream(), stream(), stream()
    expected = drawn(whole, 7)
    before = drawn(first, 3)
    first.save(tmp_path / "global_step_1")
    second.load(tmp_path / "global_step_1", step=1)
    assert before + drawn(second, 4) == expected


def test_after_a_synchronous_checkpoint_comes_the_next_step_of_the_plan(tmp_path: Path):
    prompts = stream()
    prompts.load(tmp_path, step=2)
    assert [row for row, _ in drawn(prompts, 2)] == [4, 0]


def test_names_of_groups_sort_as_they_were_drawn_and_have_no_underscore():
    names = [DrawnPrompt(number).uid() for number in (0, 9, 10, 123_456)]
    assert names == sorted(names)
    assert len(set(names)) == 4
    assert not any("_" in name for name in names)  # verl splits a sample's key there


def test_groups_of_an_earlier_stage_are_counted():
    stages = [0, 0, 1]
    assert place_metrics([DrawnPrompt(0, 2), DrawnPrompt(1, 3), DrawnPrompt(2, 1)], stages) == {
        "async/earlier_stage_groups": 2.0
    }
    assert place_metrics([DrawnPrompt(0, 1), DrawnPrompt(1, 2)], stages) == {"async/earlier_stage_groups": 0.0}


def versions(*bounds: tuple[int, int]) -> Sequence[dict[str, int]]:
    return [{"min_global_steps": first, "max_global_steps": last} for first, last in bounds]


def test_a_group_with_one_token_of_earlier_weights_is_stale():
    tags = {"a": versions((4, 4), (3, 4)), "b": versions((4, 4), (4, 4)), "c": versions((2, 2), (3, 3))}
    assert version_metrics(tags, step=5) == {"async/stale_groups": 2.0, "async/continued_samples": 1.0}
    assert version_metrics({"a": versions((0, 0))}, step=1) == {
        "async/stale_groups": 0.0,
        "async/continued_samples": 0.0,
    }


def test_a_step_is_planned_once_though_its_prompts_are_drawn_one_by_one():
    asked: list[int] = []

    def at(step: int) -> StepPrompts:
        asked.append(step)
        return StepPrompts([step, step], [False, False])

    schedule: Any = SimpleNamespace(plan=SimpleNamespace(steps=9), at=at)
    drawn(PromptStream(schedule), 4)
    assert asked == [1, 2]
