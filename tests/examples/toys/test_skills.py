"""Skills one after the other: hand-made answers, the promise of the loop, and why it asks for gain."""

import json
import math
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from examples.toys.__main__ import main
from examples.toys.skills import (
    ANCHORS,
    ARMS,
    DIGITS,
    SKILLS,
    WORDS,
    Protected,
    SkillsArm,
    WordAnswers,
    World,
    accuracy,
    log_likelihoods,
    outcome,
)


def silent() -> nn.Sequential:
    """A network that finds all words equally likely."""
    layer = nn.Linear(DIGITS * WORDS + SKILLS, DIGITS * WORDS)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(layer)


@cache
def start(seed: int) -> tuple[World, nn.Sequential]:
    world = World(seed)
    return world, world.started()


def test_an_answer_of_equally_likely_words_by_hand():
    answers = World(0).problems(1, 5)
    assert log_likelihoods(silent(), answers).tolist() == pytest.approx([-DIGITS * math.log(WORDS)] * 5)
    assert accuracy(silent(), answers) == pytest.approx(100 / WORDS**DIGITS)


def test_the_first_word_depends_on_whether_the_sum_is_odd_and_the_others_do_not():
    world = World(0)
    answers = world.problems(2, 400)
    digits = answers.prompts[:, : DIGITS * WORDS].view(-1, DIGITS, WORDS).argmax(-1)
    assert (answers.prompts[:, DIGITS * WORDS :].argmax(1) == 2).all()
    for place in range(DIGITS):
        for digit in range(WORDS):
            chosen = digits[:, place] == digit
            by_sum = [set(answers.words[chosen & (digits.sum(1) % 2 == odd), place].tolist()) for odd in (0, 1)]
            assert all(len(words) == 1 for words in by_sum)
            assert place == 0 or by_sum[0] == by_sum[1]


def test_anchors_come_first_evenly_spread_and_every_solution_stays():
    answers = WordAnswers(
        torch.zeros(48, DIGITS * WORDS + SKILLS), torch.arange(48)[:, None] % WORDS * torch.ones(1, 3).long()
    )
    numbered = WordAnswers(torch.arange(48)[:, None].float().expand(-1, DIGITS * WORDS + SKILLS), answers.words)
    kept = Protected.of(silent(), numbered)
    order = kept.solutions.prompts[:, 0].tolist()
    assert order[:ANCHORS] == list(range(0, 48, 3))
    assert sorted(order) == list(range(48))
    assert kept.level == pytest.approx(-DIGITS * math.log(WORDS))


@pytest.mark.slow
@pytest.mark.parametrize("held_out", [False, True])
def test_no_anchor_set_ends_below_its_line(held_out: bool):
    *_, change, _ = outcome(SkillsArm("", 0.01, held_out=held_out), *start(0))
    assert change >= -0.01 - 1e-6


@pytest.mark.slow
def test_gain_by_a_separate_constraint_undoes_no_step_and_gives_as_much_as_of_the_only_one():
    arms = (SkillsArm("", 0.01, 1.0), SkillsArm("", 0.01, 1.0, single=True), SkillsArm("", 0.01))
    own, only, none = ([outcome(arm, *start(seed)) for seed in (0, 1)] for arm in arms)
    assert [undone for *_, undone in own] == [0.0, 0.0]
    finals = [sum(final for _, final, *_ in runs) / 2 for runs in (own, only, none)]
    assert finals[0] == pytest.approx(finals[1], abs=1.0)
    assert finals[0] > finals[2] + 10


@pytest.mark.slow
def test_a_loop_that_asks_for_gain_is_ahead_of_rehearsal_and_both_of_grpo():
    arms = (SkillsArm("grpo"), SkillsArm("rehearsal", rehearsal=1.0), SkillsArm("loop", 0.01, 1.0))
    finals = [sum(outcome(arm, *start(seed))[1] for seed in (0, 1)) / 2 for arm in arms]
    assert finals[0] + 10 < finals[1]
    assert finals[1] + 3 < finals[2]


@pytest.mark.slow
def test_gradients_without_the_anchors_keep_more_than_gradients_with_them():
    lost = [
        sum(outcome(SkillsArm("", 0.01, held_out=held), *start(seed))[2] for seed in (0, 1)) / 2
        for held in (True, False)
    ]
    assert lost[0] + 1 < lost[1]


@pytest.mark.slow
def test_skills_writes_one_table_and_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["skills", "--seeds", "1", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "results.md").read_text() == printed
    assert len(printed.splitlines()) == 2 + len(ARMS)
    record = json.loads((tmp_path / "results.json").read_text())
    assert [row["arm"] for row in record["results"]] == [arm.name for arm in ARMS]
