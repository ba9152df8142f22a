"""True credits of each planted problem in closed form, and expected rewards by enumeration of all solutions."""

from itertools import product

import numpy as np
import pytest

from examples.toys.credit import PROBLEMS, STEPS, CausalProblem, delete_credits

NAMED = {problem.name: problem for problem in PROBLEMS}


def credits_of(problem: str, right: list[int], harmful: list[int] | None = None) -> list[float]:
    pad = STEPS - len(right)
    arrays = [np.array([*steps, *[0] * pad], dtype=float) for steps in (right, harmful or [0] * len(right))]
    return delete_credits(NAMED[problem], *arrays).tolist()


@pytest.mark.parametrize(
    ("problem", "right", "harmful", "credits"),
    [
        pytest.param("and", [1, 1, 1, 0], None, [1, 1, 0, 0], id="and: both necessary, the rest useless"),
        pytest.param("and", [1, 0, 1, 1], None, [0, 0, 0, 0], id="and: one alone earns nothing"),
        pytest.param("or", [1, 1], None, [0, 0], id="or: redundant, so silent"),
        pytest.param("or", [0, 1, 1], None, [0, 1, 0], id="or: the only one earns all"),
        pytest.param("additive", [1, 0, 1, 1], None, [0.3, 0, 0.1, 0.1], id="additive: the weights"),
        pytest.param("harmful step", [1, 1, 0, 0], [0, 0, 0, 1], [1 / 6, 1 / 6, 0, -1 / 3], id="harm is negative"),
        pytest.param("harmful step", [1, 1, 1, 0], [1, 1, 1, 0], [1 / 3, 1 / 3, 1 / 3, 0], id="no harm elsewhere"),
        pytest.param("copy bandit", [1, 0, 1], None, [1 / 8, 0, 1 / 8], id="copy: one part each"),
        pytest.param("copy bandit", [0], None, [0], id="all wrong"),
    ],
)
def test_true_credits_in_closed_form(
    problem: str, right: list[int], harmful: list[int] | None, credits: list[float]
) -> None:
    assert credits_of(problem, right, harmful) == pytest.approx([*credits, *[0] * (STEPS - len(credits))])


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_the_formula_at_probabilities_is_the_expected_reward(problem: CausalProblem) -> None:
    rng = np.random.default_rng(0)
    chances_T_3 = rng.dirichlet(np.ones(3), STEPS)  # neither, right, harmful
    states = np.array(list(product(range(3), repeat=STEPS)))
    weights = chances_T_3[np.arange(STEPS), states].prod(-1)
    rewards = problem.reward((states == 1).astype(float), (states == 2).astype(float))
    assert ((rewards >= 0) & (rewards <= 1 + 1e-12)).all()
    expected = problem.reward(chances_T_3[:, 1], chances_T_3[:, 2])
    assert float(weights @ rewards) == pytest.approx(float(expected), abs=1e-12)
