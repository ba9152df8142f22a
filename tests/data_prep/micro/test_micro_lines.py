"""Named lines: credits of chains, the share of wrong lines in demonstrations, and 16 lines that fit the model."""

import asyncio
import hashlib
import random
from pathlib import Path

import pytest

from data_prep.micro import suite
from data_prep.micro.lines import (
    NAMES,
    flawed,
    line_tests,
    random_lines,
    redundant,
    source_of,
    with_wrong_lines,
)
from data_prep.micro.problems import ALL_SKILLS
from data_prep.micro.suite import demonstrations
from data_prep.schema import Demonstration, Row, read_rows
from rewards.counterfactual.replay import Plan, estimate

pytestmark = pytest.mark.slow

GOLD = "a=lambda x:x-7\nb=lambda x:a(x)*2\nc=lambda x:b(x)+3\nd=lambda x:c(x)-4"
LINES = GOLD.splitlines()
PROMPT_TOKENS, RESPONSE_TOKENS, MODEL_TOKENS = 184, 320, 512  # configs/experiment/credit_parts16.yaml


def passed(program: str, tests: list[str]) -> float:
    """Share of the tests that the program passes."""
    scope: dict[str, object] = {}
    exec(program, scope)  # noqa: S102
    return sum(_passes(test, scope) for test in tests) / len(tests)


def _passes(test: str, scope: dict[str, object]) -> bool:
    try:
        exec(test, dict(scope))  # noqa: S102
    except (AssertionError, NameError):
        return False
    return True


def gold_tests() -> list[str]:
    values = [[step(x) for x in (-5, 0, 3, 11)] for step in (
        lambda x: x - 7, lambda x: (x - 7) * 2, lambda x: (x - 7) * 2 + 3, lambda x: (x - 7) * 2 - 1,
    )]  # fmt: skip
    return [
        f"assert ({','.join(f'{name}({x})' for x in (-5, 0, 3, 11))})==({','.join(map(str, row))})"
        for name, row in zip("abcd", values, strict=True)
    ]


def credits(program: str) -> list[float]:
    async def verify(changed: str) -> float:
        return passed(changed, gold_tests())

    found = asyncio.run(estimate(program, verify, Plan(budget=12), score=passed(program, gold_tests())))
    assert [program[step.start : step.end] for step in found.steps] == program.splitlines()
    return found.values


def test_every_later_line_of_a_right_chain_needs_the_earlier_ones():
    assert credits(GOLD) == [1.0, 0.75, 0.5, 0.25]


def test_a_misread_line_of_a_chain_earns_nothing_and_neither_does_any_line_after_it():
    written = "\n".join([LINES[0], LINES[1], "c=lambda x:b(x)+5", LINES[3]])
    assert passed(written, gold_tests()) == 0.5
    assert credits(written) == [0.5, 0.25, 0.0, 0.0]


def test_a_harmful_line_of_a_chain_costs_all_names_from_its_own_and_a_redundant_one_nothing():
    written = "\n".join([LINES[0], LINES[1], "b=lambda x:a(x)*5", "z=lambda x:b(x)+2", LINES[2], LINES[3]])
    assert credits(written) == [0.25, 0.0, -0.75, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_each_test_of_a_line_fails_with_every_misreading_of_it(chained: bool, seed: int):
    rng = random.Random(seed)
    lines = random_lines(rng, NAMES[2], chained=chained)
    tests = line_tests(lines)
    assert passed(source_of(lines), tests) == 1.0
    for index in range(len(lines)):
        corrupted = [*lines[:index], lines[index].misread(rng), *lines[index + 1 :]]
        assert passed(source_of(corrupted), tests) == (index / 8 if chained else 7 / 8)


def test_a_redundant_line_of_a_chain_changes_the_line_above_it_and_nothing_needs_it():
    lines = random_lines(random.Random(1), NAMES[1], chained=True)
    for seed in range(20):
        longer = redundant(random.Random(seed), lines)
        place = [line.name for line in longer].index("z")
        assert longer[place].before == ("" if place == 0 else longer[place - 1].name)
        assert passed(source_of(longer), line_tests(lines)) == 1.0


@pytest.mark.parametrize("skill", ["parts", "chain"])
def test_the_difficulties_have_4_8_and_16_lines(skill: str):
    problems = [ALL_SKILLS[skill](random.Random(0), difficulty) for difficulty in (1, 2, 3)]
    assert [len(problem.gold.splitlines()) for problem in problems] == [4, 8, 16]
    assert [problem.prompt.count(",") for problem in problems] == [3, 7, 15]


def test_each_line_is_wrong_with_the_stated_probability_misread_or_harmed_equally_often():
    rng, counts = random.Random(0), {"wrong": 0, "harmful": 0, "redundant": 0, "right": 0}
    for _ in range(1000):
        lines = random_lines(rng, NAMES[2])
        written, correct = with_wrong_lines(rng, lines, 0.2)
        defined = {line.name: line for line in written}
        counts["wrong"] += sum(defined[line.name] != line for line in lines)
        counts["harmful"] += len([line for line in written if line.name != "z"]) - len(lines)
        counts["redundant"] += "z" in defined
        counts["right"] += correct
        assert correct == all(defined[line.name] == line for line in lines)
    assert counts["wrong"] / 8000 == pytest.approx(0.2, abs=0.015)
    assert counts["harmful"] / 8000 == pytest.approx(0.1, abs=0.012)
    assert counts["redundant"] / 1000 == pytest.approx(0.5, abs=0.05)
    assert counts["right"] / 1000 == pytest.approx(0.8**8, abs=0.04)


def test_the_share_per_line_replaces_that_per_demonstration_for_skills_of_lines_only():
    counts, shares = {"parts": 300, "write": 300}, {"parts": 1.0, "write": 0.0}
    drawn = demonstrations("sft_train", counts, shares, seed=0, difficulty=3, line_wrong_share=0.05)
    right = {skill: [item.correct for item in drawn if item.skill == skill] for skill in counts}
    assert sum(right["parts"]) / 300 == pytest.approx(0.95**16, abs=0.09)
    assert all(right["write"])


def test_easier_demonstrations_are_as_many_of_each_lower_difficulty():
    drawn = demonstrations("sft_train", {"parts": 30}, {"parts": 0.0}, seed=0, difficulty=3, easier=True)
    lines = [item.messages[0].content.count(",") + 1 for item in drawn]
    assert {count: lines.count(count) for count in (4, 8, 16)} == {4: 10, 8: 10, 16: 10}


def test_sixteen_lines_fit_the_response_the_prompt_and_the_model():
    # Between tokens of a role, the end of a turn and newlines (data_prep.micro.model): four beside the prompt's bytes.
    longest = "parts " + ", ".join(f"{name} minus 3" for name in NAMES[3])
    assert len(longest) + 4 == PROMPT_TOKENS
    assert PROMPT_TOKENS + RESPONSE_TOKENS <= MODEL_TOKENS
    rng = random.Random(0)
    answers = [
        source_of(with_wrong_lines(rng, random_lines(rng, NAMES[3]), 0.16)[0]) for _ in range(2000)
    ]  # a byte is a token, and one more ends the turn
    assert sum(len(answer) + 1 > RESPONSE_TOKENS for answer in answers) / 2000 < 0.01
    assert len(source_of(flawed(rng, random_lines(rng, NAMES[3])))) + 1 <= 16 * 15 + 3 * 15


def test_four_lines_are_the_data_from_which_the_kept_runs_of_paper_a_started(tmp_path: Path):
    suite.main(["--out", str(tmp_path), "--skills", "parts", "--demonstrations", "2000"])
    assert (digest(tmp_path / "train.parquet", Row), digest(tmp_path / "val.parquet", Row)) == (
        "b3c3e70e0028",
        "43581a9a9728",
    )
    assert digest(tmp_path / "sft_train.parquet", Demonstration) == "43aba56dfb7f"


def digest(path: Path, kind: type[Row] | type[Demonstration]) -> str:
    rows = "\n".join(row.model_dump_json() for row in read_rows(path, kind))
    return hashlib.sha256(rows.encode()).hexdigest()[:12]
