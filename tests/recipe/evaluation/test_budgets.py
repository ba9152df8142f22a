from itertools import combinations, islice

import pytest

from recipe.evaluation.budgets import Budget, pass_at_k


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 2), (5, 0, 3), (5, 5, 5), (6, 3, 4), (4, 1, 4)])
def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_answer(n, c, k):
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_does_not_overflow():
    assert 0.63 < pass_at_k(10_000, 10, 1_000) < 0.66


@pytest.mark.parametrize(("n", "c", "k"), [(4, 2, 5), (4, 5, 1), (4, 2, 0)])
def test_pass_at_k_of_impossible_numbers_is_refused(n, c, k):
    with pytest.raises(ValueError, match="1 <= k <= n"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": "eval@2"}, "unknown --sampling"),
        ({"name": "eval@1", "samples": 4}, "one greedy answer"),
        ({"name": "eval@k", "samples": 4}, "set a temperature"),
        ({"name": "eval@budget", "temperature": 1.0}, "needs a budget"),
        ({"name": "eval@k", "temperature": 1.0, "budget": 9}, "the others take none"),
        ({"max_tokens": 0}, "must be positive"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(fields, reason):
    with pytest.raises(ValueError, match=reason):
        Budget(**fields)


def test_samples_of_eval_at_k_are_drawn_independently_and_those_of_a_budget_one_after_the_other():
    sampled = Budget("eval@k", samples=3, temperature=1.0)
    assert [list(sampled.numbers(chain)) for chain in sampled.chains] == [[0], [1], [2]]
    paid = Budget("eval@budget", temperature=1.0, budget=10, max_tokens=8)
    (chain,) = paid.chains
    assert list(islice(paid.numbers(chain), 3)) == [0, 1, 2]
    assert [paid.tokens_left(spent) for spent in (0, 4, 10)] == [8, 6, 0]


def test_each_sample_has_its_own_seed_that_does_not_change():
    budget = Budget(seed=3)
    seeds = {budget.seed_of(problem, number) for problem in ("a", "b") for number in range(50)}
    assert len(seeds) == 100
    assert max(seeds) < 2**31
    assert Budget(seed=3).seed_of("a", 7) == budget.seed_of("a", 7) != Budget(seed=4).seed_of("a", 7)
