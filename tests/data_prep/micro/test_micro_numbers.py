"""The skill `countdown`, and that other skills have the rows that they had before it."""

import asyncio
import hashlib
import random
from collections.abc import Iterable

import pytest
from pydantic import BaseModel

from data_prep.micro.numbers import Expression, answer, random_expression
from data_prep.micro.problems import ALL_SKILLS, DIFFICULTIES, SKILLS
from data_prep.micro.suite import WRONG_SHARES, demonstrations, rows
from rewards.settings import JudgeSettings
from rewards.verifiers.countdown import judge

pytestmark = pytest.mark.slow


def score(text: str, truth: BaseModel) -> float:
    return asyncio.run(judge(text, truth, JudgeSettings(partial_credit=False))).score


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_the_gold_answer_scores_one_and_every_wrong_one_nothing(difficulty: int):
    rng = random.Random(difficulty)
    for _ in range(50):
        problem = ALL_SKILLS["countdown"](rng, difficulty)
        truth = problem.truth()
        assert score(problem.gold, truth) == 1.0
        assert problem.wrong
        assert {score(wrong, truth) for wrong in problem.wrong} == {0.0}
        assert len(problem.gold) <= 25


def test_a_value_by_hand():
    assert Expression((3, 5, 7), ("*", "+")).value() == 22
    assert Expression((9, 2, 3, 4), ("-", "*", "+")).value() == 7
    assert Expression((8, 2, 2), ("-", "-")).value() == 4
    assert answer(Expression((3, 5, 7), ("*", "+"))) == "<answer>3*5+7</answer>"
    # 2+2 and 2*2 are worth the same, so the second is no wrong answer
    assert [each.source() for each in Expression((2, 2), ("+",)).neighbours()] == ["2-2"]


def test_digits_are_listed_in_the_order_of_the_expression_at_difficulty_one_only():
    drawn = [random_expression(random.Random(seed), difficulty) for difficulty in (1, 2) for seed in range(40)]
    in_order = [listed == list(expression.digits) for expression, listed in drawn]
    assert all(in_order[:40])
    assert not all(in_order[40:])
    assert all(sorted(listed) == sorted(expression.digits) for expression, listed in drawn)
    assert all(1 <= expression.value() <= 30 for expression, _ in drawn)


def digest(made: Iterable[BaseModel]) -> str:
    return hashlib.sha256("\n".join(each.model_dump_json() for each in made).encode()).hexdigest()[:16]


def test_the_four_skills_have_the_rows_and_demonstrations_that_studies_were_run_on():
    four = list(SKILLS)
    assert digest(rows("train", four, seed=0, count=20, difficulty=1)) == "33daf323781ca5c4"
    assert digest(rows("val", four, seed=0, count=20, difficulty=1)) == "ceb478059d018470"
    counts = dict.fromkeys(four, 20)
    made = demonstrations("sft_train", counts, WRONG_SHARES, seed=0, difficulty=1)
    assert digest(made) == "8507a321222165aa"
