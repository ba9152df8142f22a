"""The skill `parts`: lines whose credits are known, and the stated shares of redundant and harmful ones."""

import asyncio
import random
from collections import Counter

import pytest

from data_prep.micro.lines import NAMES, REDUNDANT_SHARE, flawed, random_lines, redundant, source_of
from data_prep.micro.problems import parts_problem
from data_prep.micro.suite import demonstrations, rows
from rewards.counterfactual.replay import Plan, estimate
from rewards.verifiers.code import CodeTruth

FOUR = NAMES[1]


def share_right(program: str, gold: str) -> float:
    """Share of the requested names; the last definition of a name counts, as in Python. Replays change the blanks."""
    program, gold = program.replace(" ", ""), gold.replace(" ", "")
    defined = {line[0]: line for line in program.splitlines()}
    wanted = gold.splitlines()
    return sum(defined.get(line[0]) == line for line in wanted) / len(wanted)


def credits(program: str, gold: str) -> list[float]:
    async def verify(changed: str) -> float:
        return share_right(changed, gold)

    found = asyncio.run(estimate(program, verify, Plan(budget=12), score=share_right(program, gold)))
    assert [program[step.start : step.end] for step in found.steps] == program.splitlines()
    return found.values


GOLD = "a=lambda x:x-7\nb=lambda x:x*2\nc=lambda x:x+3\nd=lambda x:x-4"


def test_each_line_of_a_right_program_earns_its_share():
    assert credits(GOLD, GOLD) == [0.25] * 4


def test_misread_and_redundant_lines_earn_nothing_and_harmful_ones_cost_their_share():
    written = "a=lambda x:x-7\nb=lambda x:x*5\nz=lambda x:x+3\nc=lambda x:x+3\nc=lambda x:x-3\nd=lambda x:x-4"
    # the right line for c is overridden, so it earns nothing either, until the harmful one is gone
    assert credits(written, GOLD) == [0.25, 0.0, 0.0, 0.0, -0.25, 0.25]


@pytest.mark.parametrize("seed", range(20))
def test_versions_are_what_they_are_called(seed: int):
    rng = random.Random(seed)
    lines = random_lines(rng, FOUR)
    gold = source_of(lines)
    longer, wrong = source_of(redundant(rng, lines)), source_of(flawed(rng, lines))
    assert share_right(longer, gold) == 1.0
    assert len(longer.splitlines()) == 5
    assert 0.5 <= share_right(wrong, gold) < 1.0
    assert len(wrong) <= 110  # the longest answer, which a run's response length must allow


@pytest.mark.slow
def test_wrong_programs_have_misread_harmful_and_redundant_lines_in_the_stated_shares():
    rng = random.Random(0)
    counts: Counter[str] = Counter()
    for _ in range(2000):
        lines = random_lines(rng, FOUR)
        names = [line.name for line in flawed(rng, lines)]
        counts["harmful"] += len(names) - len(set(names))
        counts["redundant"] += "z" in names
    # 1.5 names are wrong on average, half of them because of a harmful line
    assert counts["harmful"] / 2000 == pytest.approx(0.75, abs=0.05)
    assert counts["redundant"] / 2000 == pytest.approx(0.5, abs=0.04)


def test_a_test_for_each_name_and_the_same_seed_the_same_problem():
    problem, again = (parts_problem(random.Random(3), 2) for _ in range(2))
    assert (problem.prompt, problem.gold, problem.wrong) == (again.prompt, again.gold, again.wrong)
    truth = problem.truth()
    assert isinstance(truth, CodeTruth)
    assert [test[8] for test in truth.tests] == list(NAMES[2])
    assert problem.prompt.startswith("parts a ")


@pytest.mark.slow
def test_demonstrations_are_right_redundant_and_wrong_in_the_stated_shares():
    drawn = demonstrations("sft_train", {"parts": 800}, {"parts": 0.4}, seed=0, difficulty=1)
    right = [item for item in drawn if item.correct]
    longer = [item for item in right if "z=" in item.messages[1].content]
    assert len(right) / 800 == pytest.approx(0.6, abs=0.05)
    assert len(longer) / len(right) == pytest.approx(REDUNDANT_SHARE, abs=0.05)


def test_rows_are_judged_by_the_code_verifier():
    (row,) = rows("val", ["parts"], seed=0, count=1, difficulty=1)
    assert (row.data_source, row.skill) == ("code", "parts")
