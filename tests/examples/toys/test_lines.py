"""Credits of planted programs in closed form, and their accuracy by enumeration of all programs."""

from itertools import product

import pytest
import torch

from examples.toys.lines import (
    INTERVENTIONS,
    PROBLEMS,
    SHARED,
    CountedTests,
    Intervention,
    LineProblem,
    credits_of,
    deletion_credits,
)

NAMED = {problem.name: problem for problem in PROBLEMS}
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)


@pytest.mark.parametrize(
    ("name", "method", "program", "credits"),
    [
        pytest.param("4 lines", "delete", [1, 0, 1, 1], [0.25, 0, 0.25, 0.25], id="its own test each"),
        pytest.param("4 lines", "truncate", [1, 0, 1, 1], [0.25, 0, 0.25, 0.25], id="additive in any order"),
        pytest.param("4 lines", "replace", [1, 0, 1, 1], [0, -0.25, 0, 0], id="wrong beside a right sibling"),
        pytest.param("4 lines", "both", [1, 0, 1, 1], [0.25, -0.25, 0.25, 0.25], id="its own test, or a better line"),
        pytest.param("redundant lines", "both", [1, 1, 1, 0, 0, 0, 1, 1], [0, 0, 0.25, 0, *[-0.25] * 2, 0, 0], id="or"),
        pytest.param("chain of 4", "delete", [1, 1, 0, 1], [0.5, 0.25, 0, 0], id="all that follows hangs on it"),
        pytest.param("chain of 4", "truncate", [1, 1, 0, 1], [0.25, 0.25, 0, 0], id="no more than it adds"),
        pytest.param("chain of 4", "replace", [1, 1, 0, 1], [0, 0, -0.5, 0], id="the first wrong line"),
        pytest.param("chain of 4", "replace", [0, 1, 0, 1], [-0.5, 0, 0, 0], id="only the first of two"),
        pytest.param("redundant lines", "delete", [1, 1, 1, 0, 0, 0, 1, 1], [0, 0, 0.25, *[0] * 5], id="spare is 0"),
        pytest.param("harmful line", "delete", [0, *[1] * 7], [-4 / 7, *[0] * 4, *[1 / 7] * 3], id="harm is negative"),
        pytest.param("harmful line", "delete", [1] * 8, [0, *[1 / 7] * 7], id="harmless is 0"),
    ],
)
def test_credits_in_closed_form(name: str, method: Intervention, program: list[int], credits: list[float]) -> None:
    # The sibling passes everything.
    programs = torch.tensor([program, [1] * len(program)]).float()
    assert credits_of(NAMED[name], programs, method)[0].tolist() == pytest.approx(credits)


@each_problem
def test_truncation_telescopes(problem: LineProblem) -> None:
    programs = torch.randint(0, 2, (40, problem.lines), generator=torch.Generator().manual_seed(0)).float()
    empty = problem.pass_ratio(programs, torch.zeros_like(programs))
    total = credits_of(problem, programs, "truncate").sum(-1)
    torch.testing.assert_close(total, problem.pass_ratio(programs) - empty)


@pytest.mark.parametrize(
    ("problem", "counted", "program", "credits"),
    [
        pytest.param(NAMED["4 lines"], "all", [1, 0, 1, 1], [0.25, 0, 0.25, 0.25], id="all"),
        pytest.param(NAMED["4 lines"], "varying", [1, 0, 1, 1], [0, 0, 0, 0], id="only the wrong line's test varies"),
        pytest.param(NAMED["4 lines"], "varying", [1, 1, 1, 1], [0.25] * 4, id="none varies"),
        pytest.param(NAMED["chain of 4"], "varying", [1, 1, 0, 1], [0, 0, 0, 0], id="those that fail are the same"),
        pytest.param(NAMED["4 lines"], "known", [1, 0, 1, 1], [1, 0, 1, 1], id="its own test"),
        pytest.param(NAMED["chain of 4"], "known", [1, 1, 0, 1], [1, 1, 0, 0], id="right as far as is known"),
        pytest.param(NAMED["harmful line"], "known", [0, *[1] * 7], [-1, *[0] * 4, 1, 1, 1], id="what it repairs"),
        pytest.param(SHARED, "all", [1, 1, 0, *[1] * 5], [6 / 7, 1 / 7, 0, *[1 / 7] * 5], id="less of the shared"),
        pytest.param(SHARED, "known", [1, 1, 0, *[1] * 5], [1, 1, 0, *[1] * 5], id="all of the shared"),
    ],
)
def test_credits_over_some_of_the_tests(
    problem: LineProblem, counted: CountedTests, program: list[int], credits: list[float]
) -> None:
    programs = torch.tensor([program, [1] * len(program)]).float()
    assert deletion_credits(problem, programs, counted)[0].tolist() == pytest.approx(credits)


@pytest.mark.parametrize(
    "problem", [SHARED, *(one for one in PROBLEMS if one.lines < 16)], ids=lambda problem: problem.name
)
def test_accuracy_is_the_chance_of_passing_all_tests(problem: LineProblem) -> None:
    programs = torch.tensor(list(product((0.0, 1.0), repeat=problem.lines)))
    chance = torch.linspace(0.3, 0.9, problem.lines)
    weights = torch.where(programs > 0, chance, 1 - chance).prod(-1)
    passed = (problem.pass_ratio(programs) > 1 - 1e-4).float()
    assert float(problem.accuracy(chance)) == pytest.approx(float(weights @ passed), abs=1e-5)


def test_a_sibling_gives_its_line_but_no_program_to_itself() -> None:
    problem = NAMED["4 lines"]
    programs = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]]).float()
    found = credits_of(problem, programs, "replace")
    assert found.tolist() == [[0, 0, 0.25, 0], [0, 0, -0.25, 0], [-0.25, -0.25, -0.25, 0.25]]


@each_problem
@pytest.mark.parametrize("method", INTERVENTIONS)
def test_leading_dimensions_do_not_matter(problem: LineProblem, method: Intervention) -> None:
    programs = torch.randint(0, 2, (3, 2, 4, problem.lines), generator=torch.Generator().manual_seed(1)).float()
    whole = credits_of(problem, programs, method)
    assert torch.equal(whole[2, 1], credits_of(problem, programs[2, 1], method))
