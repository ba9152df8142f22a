"""Methods that share a budget, what their credits become together, exact Shapley values, and tests beside credits."""

import asyncio
import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.counterfactual.methods import combined, shared_budget
from rewards.counterfactual.plan import Plan
from rewards.counterfactual.replay import Outcome, Sibling, estimate

NAMES = "abcdefgh"


def program(*values: int, names: str = NAMES) -> str:
    return "\n".join(f"{name} = {value}" for name, value in zip(names, values, strict=False))


def right(text: str, steps: int = 4) -> tuple[bool, ...]:
    """One test per name: whether its line has the value 1."""
    return tuple(f"{name} = 1" in text.splitlines() for name in NAMES[:steps])


def share(text: str) -> Outcome:
    tests = right(text)
    return Outcome(sum(tests) / len(tests), tests)


def credits_of(solution, siblings=(), judge=share, seen=None, seed=0, **plan):
    async def verify(text):
        if seen is not None:
            seen.append(text)
        return judge(text)

    group = [Sibling(text, judge(text)[0] if isinstance(judge(text), Outcome) else judge(text)) for text in siblings]
    return asyncio.run(
        estimate(solution, verify, Plan(**plan), score=judge(solution), rng=random.Random(seed), siblings=group)
    )


SHARES = st.lists(st.integers(0, 9), min_size=1, max_size=5)


@pytest.mark.slow
@given(st.integers(1, 40), SHARES)
def test_a_budget_is_shared_equally_and_nothing_is_left_while_a_method_needs_more(budget, needs):
    shares = shared_budget(budget, needs)
    assert sum(shares) == min(budget, sum(needs))
    assert all(share <= need for share, need in zip(shares, needs, strict=True))
    unmet = [share for share, need in zip(shares, needs, strict=True) if share < need]
    assert not unmet or max(shares) - min(unmet) <= 1


CREDIT = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0, math.nan])


@pytest.mark.slow
@given(CREDIT, CREDIT, CREDIT)
def test_the_most_negative_evidence_counts_then_what_the_step_earns_then_the_replacement(deleted, cut, replaced):
    nothing = np.full((1, 1), math.nan)
    found = combined(
        {"delete": np.array([[deleted]]), "truncate": np.array([[cut]]), "replace": np.array([[replaced]])}, nothing
    )[0, 0]
    effects = [value for value in (deleted, cut) if not math.isnan(value)]
    effect = sum(effects) / len(effects) if effects else math.nan
    known = [value for value in (effect, replaced) if not math.isnan(value)]
    if not known:
        assert math.isnan(found)
    elif min(known) < 0:
        assert found == min(known)
    else:
        assert found == (effect if effect > 0 or math.isnan(replaced) else replaced)


def test_one_method_is_left_as_it_is():
    values = np.array([[0.5], [math.nan], [-0.5]])
    for method in ("delete", "truncate", "replace", "shapley"):
        found = combined({method: values}, np.full((3, 1), math.nan))
        np.testing.assert_array_equal(found, values)


def all_right(text: str) -> Outcome:
    return Outcome(float(all(right(text))))


def test_a_sibling_that_passed_reveals_a_wrong_step_where_deleting_it_shows_nothing():
    wrong, passed = program(1, 1, 5, 1), program(1, 1, 1, 1)
    alone = credits_of(wrong, [wrong, passed], all_right, budget=8)
    assert alone.values == [0, 0, 0, 0]
    together = credits_of(wrong, [wrong, passed], all_right, budget=8, methods=("delete", "replace"))
    assert together.values == [0, 0, -1, 0]
    assert together.replays == 5  # four deletions, and the one step that the sibling wrote differently


def test_a_wrong_step_without_which_the_rest_breaks_is_wrong_all_the_same():
    def judge(text: str) -> Outcome:
        lines = text.splitlines()
        return Outcome(0.5 * ("a = 5" in lines or "a = 1" in lines) + 0.5 * ("a = 1" in lines))

    solution, passed = "a = 5\nb = 1", "b = 1\na = 1"
    assert credits_of(solution, [passed], judge).values == [0.5, 0.0]
    assert credits_of(solution, [passed], judge, methods=("delete", "replace")).values == [-0.5, 0.0]


def test_deleting_a_harmful_line_reveals_it():
    solution, passed = program(1, 1, 1, 1) + "\nz = 0", program(1, 1, 1, 1)

    def judge(text: str) -> Outcome:
        return Outcome(float(all(right(text)) and "z = 0" not in text))

    found = credits_of(solution, [passed], judge, methods=("replace", "delete"), budget=8)
    assert found.values == [0, 0, 0, 0, -1]


def test_replacement_goes_by_what_a_step_is_and_prefers_the_best_sibling():
    seen: list[str] = []
    solution = program(1, 1, 5, 1)
    better, worse = "d = 1\nc = 1\na = 1\nb = 1", program(7, 7, 7, 7)
    found = credits_of(
        solution, [worse, better, solution], seen=seen, methods=("replace",), budget=1, check_flaky=False
    )
    assert seen == [program(1, 1, 1, 1)]
    assert found.values[2] == -0.25
    assert found.asked == 1


def test_a_replacement_speaks_of_the_solutions_own_names():
    solution = "def f(n):\n    total = 0\n    for i in n:\n        total -= i\n    return total"
    sibling = "def f(m):\n    s = 0\n    for x in m:\n        s += x\n    return s"
    right_one = solution.replace("-=", "+=")

    def judge(text: str) -> Outcome:
        return Outcome(float(text == right_one))

    found = asyncio.run(
        estimate(
            solution, lambda text: asyncio.sleep(0, judge(text)), Plan(methods=("replace",)), score=0.0,
            siblings=[Sibling(sibling, 1.0)],
        )
    )  # fmt: skip
    wrong = [index for index, value in enumerate(found.values) if value == -1.0]
    assert [solution[found.steps[index].start : found.steps[index].end] for index in wrong] == ["total -= i"]


def test_steps_that_all_siblings_have_are_not_replayed_and_have_no_credit():
    solution, siblings = program(1, 1, 5, 1), [program(1, 2, 1, 1), program(1, 3, 1, 1)]
    found = credits_of(solution, siblings, choice="informative", budget=8)
    assert [math.isnan(value) for value in found.values] == [True, False, False, True]
    assert (found.equal, found.asked, found.cause) == (2, 2, "")
    assert credits_of(solution, choice="informative", budget=8).equal == 0  # without siblings there is nothing to tell
    alike = credits_of("a = 1\nb = 2", ["b = 2\na = 1"], choice="informative")
    assert (alike.cause, alike.equal, alike.replays) == ("equal_steps", 2, 0)


def test_the_informative_choice_takes_the_step_that_goes_with_the_reward():
    solution = program(1, 1, 1, 1)
    siblings = [program(2, 1, 1, 1), program(1, 2, 5, 1), program(1, 3, 6, 1), program(1, 1, 7, 2)]

    def judge(text: str) -> Outcome:
        return Outcome(float("c = 1" in text))

    found = credits_of(solution, siblings, judge, choice="informative", budget=1)
    assert found.values[2] == 1.0
    assert found.replays == 1


def test_a_step_that_no_run_can_reach_has_credit_0_without_a_replay():
    solution = "def f():\n    return 1\n    print(2)\nb = 1"
    found = credits_of(solution, ["b = 2"], lambda text: Outcome(float("return 1" in text)), choice="informative")
    assert found.unreached == 1
    assert found.values[2] == 0.0
    assert found.replays == 3


@pytest.mark.slow
@given(
    st.sets(st.integers(0, 3)),
    st.sampled_from([("delete",), ("truncate",), ("shapley",), ("replace",), ("delete", "replace")]),
    st.integers(2, 20),
)
def test_a_steps_parts_in_the_tests_have_its_credit_as_their_mean(wrong, methods, budget):
    solution = program(*(5 if index in wrong else 1 for index in range(4)))
    found = credits_of(solution, [program(1, 1, 1, 5)], methods=methods, budget=budget)
    assert found.tests.shape == (4, 4)
    np.testing.assert_allclose(found.tests.mean(axis=1), found.values)
    if methods == ("delete",) and budget >= 4:
        np.testing.assert_array_equal(found.tests, np.diag([float(index not in wrong) for index in range(4)]))


def test_a_program_that_passes_other_tests_when_it_runs_again_is_flaky():
    answers = iter([Outcome(0.5, (True, False)), Outcome(0.5, (False, True))])

    async def verify(text):
        return next(answers)

    found = asyncio.run(estimate("a = 1\nb = 2", verify, Plan(), score=next(answers)))
    assert found.cause == "flaky"


def worth_of(seed: int, blocks: int = 4) -> dict[tuple[bool, ...], float]:
    rng = random.Random(seed)
    return {kept: rng.random() for kept in itertools.product([False, True], repeat=blocks)}


def players(coalition: tuple[bool, ...]) -> list[int]:
    return [player for player, joins in enumerate(coalition) if joins]


def exact(worth: dict[tuple[bool, ...], float], orders: Sequence[tuple[int, ...]] = ()) -> list[float]:
    """Mean gains of the players over these orders; over all: Shapley values by the definition."""
    number = len(next(iter(worth)))
    values = [0.0] * number
    orders = orders or list(itertools.permutations(range(number)))
    for order in orders:
        for position, player in enumerate(order):
            before = tuple(index in order[:position] for index in range(number))
            after = tuple(index in order[: position + 1] for index in range(number))
            values[player] += (worth[after] - worth[before]) / len(orders)
    return values


@pytest.mark.slow
@given(st.integers(0, 1000), st.integers(2, 4), st.integers(15, 40))
def test_shapley_values_of_up_to_four_blocks_are_exact_with_budget_for_all_coalitions(seed, blocks, budget):
    worth = worth_of(seed, blocks)
    found = credits_of(program(*[1] * blocks), judge=lambda text: Outcome(worth[right(text)[:blocks]]),
                       methods=("shapley",), budget=budget)  # fmt: skip
    assert found.values == pytest.approx(exact(worth))
    assert found.replays == 2**blocks - 1


def test_sampled_orders_come_with_their_reverses_so_that_pairwise_effects_are_exact():
    def judge(text: str) -> Outcome:
        a, b, c, d = right(text)
        return Outcome(0.2 * a + 0.4 * (b and c) + 0.4 * (a and d))

    found = credits_of(program(1, 1, 1, 1), judge=judge, methods=("shapley",), budget=8, seed=3)
    assert found.values == pytest.approx([0.4, 0.2, 0.2, 0.2])
    assert found.replays == 7


@pytest.mark.slow
@given(st.sets(st.sampled_from(NAMES[:4]), min_size=1, max_size=3))
def test_a_coalition_that_could_not_be_judged_spoils_only_the_orders_that_hold_it(kept):
    worth = worth_of(7)
    corrupted = tuple(name in kept for name in NAMES[:4])

    def judge(text: str) -> Outcome:
        return Outcome(math.nan if right(text) == corrupted else worth[right(text)])

    found = credits_of(program(1, 1, 1, 1), judge=judge, methods=("shapley",), budget=15)
    others = [order for order in itertools.permutations(range(4)) if set(order[: len(kept)]) != set(players(corrupted))]
    assert found.values == pytest.approx(exact(worth, others))
    assert sum(found.values) == pytest.approx(worth[(True,) * 4] - worth[(False,) * 4])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ()}, "at least one"),
        ({"methods": ("delete", "delete")}, "each once"),
        ({"methods": ("delete", "shapley")}, "the only method"),
        ({"methods": ("delete", "replace"), "budget": 1}, "share budget=1"),
    ],
)
def test_methods_that_cannot_share_a_budget_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Plan(**options)
