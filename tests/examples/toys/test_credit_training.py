"""Runs are reproducible, strength 0 is GRPO, and the effects of true, shuffled and inverted credit on updates."""

import numpy as np
import pytest

from examples.toys.credit import (
    ARMS,
    PROBLEMS,
    STEPS,
    CausalProblem,
    CreditRun,
    expected_reward,
    softmax,
    steps_to_solve,
    study,
    table,
)

pytestmark = pytest.mark.slow

NAMED = {problem.name: problem for problem in PROBLEMS}
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)


@each_problem
def test_seeds_reproduce_and_differ(problem: CausalProblem) -> None:
    run = CreditRun(seeds=20)
    first = steps_to_solve(problem, ARMS["credit"], run)
    assert (first == steps_to_solve(problem, ARMS["credit"], run)).all()
    assert (first != steps_to_solve(problem, ARMS["credit"], CreditRun(seeds=20, seed=1))).any()


@each_problem
def test_strength_zero_is_grpo(problem: CausalProblem) -> None:
    run = CreditRun(seeds=20, strength=0.0)
    grpo = steps_to_solve(problem, ARMS["GRPO"], run)
    for arm in ("credit", "shuffled credit", "inverted credit"):
        assert (steps_to_solve(problem, ARMS[arm], run) == grpo).all()


@each_problem
def test_true_credit_needs_fewer_updates_and_inverted_credit_more(problem: CausalProblem) -> None:
    run = CreditRun(seeds=60, limit=60)
    grpo, credit, inverted = (steps_to_solve(problem, ARMS[arm], run) for arm in ("GRPO", "credit", "inverted credit"))
    assert credit.mean() < 0.8 * grpo.mean()
    assert inverted.mean() > 1.5 * grpo.mean()


@each_problem
def test_shuffled_credit_does_not_beat_grpo_beyond_noise(problem: CausalProblem) -> None:
    run = CreditRun(seeds=300, seed=1)
    gain = steps_to_solve(problem, ARMS["GRPO"], run) - steps_to_solve(problem, ARMS["shuffled credit"], run)
    # Three standard errors, because there are five problems.
    assert gain.mean() < 3 * gain.std(ddof=1) / np.sqrt(run.seeds)


def test_credit_beats_a_doubled_rate_where_steps_share_parameters_and_not_where_they_are_necessary() -> None:
    run = CreditRun(seeds=60)
    ratios = {
        name: steps_to_solve(NAMED[name], ARMS["credit"], run).mean()
        / steps_to_solve(NAMED[name], ARMS["GRPO, twice the rate"], run).mean()
        for name in ("and", "or", "copy bandit")
    }
    assert ratios["copy bandit"] < 0.85
    assert min(ratios["and"], ratios["or"]) > 1.15


def test_a_run_that_never_solves_counts_as_one_more_than_the_limit() -> None:
    run = CreditRun(seeds=5, limit=3)
    assert (steps_to_solve(NAMED["copy bandit"], ARMS["GRPO"], run) == 4).all()
    assert (steps_to_solve(NAMED["or"], ARMS["GRPO"], CreditRun(seeds=5, solved=0.4)) == 0).all()


def test_expected_rewards_of_known_policies() -> None:
    uniform = {problem.name: float(expected_reward(problem, _table(problem, 0.0))[0]) for problem in PROBLEMS}
    expected = {"and": 1 / 16, "or": 7 / 16, "additive": 1 / 4, "harmful step": 7 / 32, "copy bandit": 1 / 8}
    assert uniform == pytest.approx(expected)
    for problem in PROBLEMS:
        assert expected_reward(problem, _table(problem, 50.0)) == pytest.approx([1.0])


def test_softmax_adds_up_to_one_without_overflow() -> None:
    np.testing.assert_allclose(softmax(np.array([1000.0, 1000.0, -1000.0])), [0.5, 0.5, 0.0])


def test_the_study_pairs_each_arm_with_grpo_and_counts_verifier_calls() -> None:
    run = CreditRun(seeds=10, limit=4, learning_rate=4.0)
    results = list(study(run))
    assert [(row.problem, row.arm) for row in results] == [(p.name, arm) for p in PROBLEMS for arm in ARMS]
    grpo, credit = results[0], results[1]
    assert (grpo.difference.low, grpo.difference.high) == (0, 0)
    assert credit.difference.estimate == pytest.approx(credit.steps.estimate - grpo.steps.estimate)
    assert grpo.verifier_calls == pytest.approx(grpo.steps.estimate * 8)
    assert credit.verifier_calls == pytest.approx(credit.steps.estimate * 8 * 9)
    assert results[-2].solved.estimate == 0  # inverted credit on the copy bandit
    lines = table(results).splitlines()
    assert len(lines) == 2 + len(results)
    assert lines[2].startswith(f"| and | GRPO | {grpo.steps.estimate:.1f} [")


@pytest.mark.parametrize(
    "change",
    [{"seeds": 0}, {"group": 1}, {"limit": 0}, {"learning_rate": 0.0}, {"strength": -1.0}, {"solved": 1.5}],
)
def test_settings_out_of_range_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        CreditRun(**change)  # type: ignore[arg-type]


def _table(problem: CausalProblem, height: float) -> np.ndarray:
    """Logits (1, C, V) that raise the right action of each row."""
    rows = np.arange(STEPS)
    logits = np.zeros((1, STEPS, problem.actions))
    logits[0, rows, rows % problem.actions] = height
    return logits
