"""What siblings wrote for a step: which version is taken, in whose names, and that no group breaks an estimate."""

import asyncio
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.counterfactual.plan import CHOICES, Plan
from rewards.counterfactual.replay import Outcome, Sibling, estimate
from rewards.counterfactual.siblings import Alternatives, equal_steps, informative, of_programs, renamed


def best(solution: str, siblings: dict[str, float], index: int = 0) -> set[str | None]:
    """What is put in the place of a step, over ten draws."""
    group = [Sibling(text, reward) for text, reward in siblings.items()]
    alternatives = Alternatives(*of_programs(solution, group, "statement", False))
    return {alternatives.best(index, random.Random(seed)) for seed in range(10)}


def test_the_best_sibling_with_other_code_is_taken_and_equally_good_ones_are_drawn():
    assert best("a = 1\nb = 0", {"a = 2": 0.5, "a = 3": 1.0, "a = 1": 1.0, "b = 9": 1.0, "a = 4": math.nan}) == {
        "a = 3"
    }
    assert best("a = 1\nb = 0", {"a = 2": 1.0, "b = 7\na = 3": 1.0}) == {"a = 2", "a = 3"}
    assert best("a = 1\nb = 0", {"b = 2": 1.0, "a=1 # the same": 1.0, "a = (": 1.0}) == {None}


def test_code_that_differs_in_a_name_of_the_solutions_own_is_no_other_code_and_takes_no_replay():
    """The sibling writes `s` for `total`; only its first line does something else."""
    own = "def f(xs):\n    total = 5\n    for x in xs:\n        total += x\n    return total"
    other = "def f(xs):\n    s = 0\n    for x in xs:\n        s += x\n    return s"
    replayed = []

    async def verify(changed):
        replayed.append(changed)
        return float("total = 0" in changed)

    plan = Plan(methods=("replace",), budget=2, align=True)
    found = asyncio.run(estimate(own, verify, plan, score=0.0, siblings=[Sibling(own, 0.0), Sibling(other, 1.0)]))
    assert [value for value in found.values if not math.isnan(value)] == [-1.0]
    assert (found.asked, found.invalid, found.replays) == (1, 0, 1)


def test_siblings_that_write_the_same_under_other_names_are_evidence_for_one_code():
    """Three siblings start at 0 and pass both tests; their names and layout differ."""
    own = "def f(xs):\n    total = 5\n    for x in xs:\n        total += x\n    return total"
    right = [own.replace("total = 5", "total = 0").replace("total", name) for name in ("s", "acc", "t")]
    right[0] = right[0].replace("s = 0", "s=0  # nothing yet")
    group = [Sibling(text, 1.0, tests=(True, True)) for text in right]
    group += [Sibling(own, 0.0, tests=(False, False))]
    group += [Sibling(own.replace("total = 5", "total = 7"), 0.0, tests=(False, False))]
    alternatives = Alternatives(*of_programs(own, group, "statement", False, frozenset({"f"})))
    index = next(number for number, piece in enumerate(alternatives.own.pieces) if "5" in piece)
    assert [code.words for code in alternatives.codes(index)] == [("total", "=", "0"), ("total", "=", "7")]
    assert alternatives.promise(index) == 1.0
    assert all(not alternatives.codes(other) for other in range(len(alternatives.own.pieces)) if other != index)


def with_tests(*solutions: str) -> list[Sibling]:
    """Solutions with one test per line a to d, which wants the value 1."""
    tests = [tuple(f"{name} = 1" in text.splitlines() for name in "abcd") for text in solutions]
    return [Sibling(text, sum(own) / 4, tests=own) for text, own in zip(solutions, tests, strict=True)]


def lines(*values: int) -> str:
    return "\n".join(f"{name} = {value}" for name, value in zip("abcd", values, strict=True))


def test_code_that_goes_with_a_test_that_fails_comes_before_that_of_a_better_sibling():
    solution = lines(5, 1, 7, 1)
    better, worse = lines(6, 1, 1, 1), lines(1, 8, 9, 2)  # the better one is wrong about a, too
    group = with_tests(solution, better, worse, lines(7, 1, 1, 3))
    own, others = of_programs(solution, group, "statement", False)
    alternatives = Alternatives(own, others)
    assert [alternatives.best(index, random.Random(0)) for index in range(4)] == ["a = 1", "b = 8", "c = 1", "d = 2"]
    assert alternatives.promise(0) == alternatives.promise(2) == 1.0
    without_tests = [Sibling(sibling.text, sibling.reward) for sibling in group]
    assert Alternatives(*of_programs(solution, without_tests, "statement", False)).best(0, random.Random(0)) == "a = 6"


def test_the_step_that_decides_a_test_tells_more_than_one_whose_code_goes_with_the_reward():
    solution = lines(1, 1, 1, 5)
    group = with_tests(solution, lines(1, 1, 6, 1), lines(1, 1, 7, 1), lines(1, 1, 1, 8))
    own, others = of_programs(solution, group, "statement", False)
    assert informative(own, others)[:2] == [2, 3]
    assert equal_steps(own, others) == {0, 1}


def test_code_that_reads_what_the_solution_lacks_is_no_replacement():
    assert best("a = 1\nb = 2", {"c = 5\na = c": 1.0, "a = max(b, 0)": 0.5}) == {"a = max(b, 0)"}
    assert best("b = 2\nprint(b)", {"b = 3\nprint(c := c + 1)": 1.0}, 1) == {None}
    assert best("a = 1\nb = 2", {"a = math.pi": 1.0}) == {None}
    assert best("a = 1\nb = 2", {"a = [c for c in b]": 1.0}) == {"a = [c for c in b]"}


def test_a_step_of_other_names_in_another_order_is_replaced_by_its_own_version():
    solution = "def f(r):\n t = 9\n s = 1\n for i in r:\n  s += abs(i)\n return s"
    sibling = "def f(r):\n total = 0\n for i in r:\n  total += i\n return total"
    assert [best(solution, {sibling: 1.0}, index) for index in (1, 2, 4)] == [{None}, {"s = 0"}, {"s += i"}]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("y += x", "z += x"),
        ("f(y, y=y.y)", "f(z, y=z.y)"),
        ("for y in range(y):", "for z in range(z):"),
        ("print('y')", None),
        ("print(f'{y}')", None),
        ("x = 1", "x = 1"),
        ("y = (", None),
    ],
)
def test_names_are_replaced_where_they_are_names(code, expected):
    assert renamed(code, {"y": "z"}) == expected


TEXTS = st.sampled_from(
    ["a = 1\nb = 2", "b = 3\na = 1", "def f(n):\n    return n", "def f(m):\n    k = m\n    return k", "def f(:", "",
     "if a:\n    b = 1\nelse:\n    b = 2", "x", "try:\n    a = 1\nexcept E as e:\n    raise", "é = 1"]
)  # fmt: skip
REWARDS = st.sampled_from([0.0, 0.5, 1.0, math.nan])
METHODS = st.sampled_from([("delete", "replace"), ("replace", "delete", "truncate"), ("replace",), ("shapley",)])


@pytest.mark.slow
@given(TEXTS, st.lists(st.tuples(TEXTS, REWARDS), max_size=5), METHODS, st.sampled_from(CHOICES), st.integers(3, 9))
def test_no_group_breaks_an_estimate_or_overspends(solution, others, methods, choice, budget):
    async def verify(text):
        return Outcome(len(text) % 3 / 2)

    group = [Sibling(text, reward) for text, reward in others]
    plan = Plan(methods=methods, choice=choice, budget=budget, check_flaky=False)
    found = asyncio.run(estimate(solution, verify, plan, score=0.5, siblings=group))
    assert found.replays <= budget
    assert len(found.keys) == len(found.values) == len(found.steps)
    assert bool(found.cause) == all(map(math.isnan, found.values))
    assert all(map(math.isfinite, found.values)) or methods != ("shapley",) or found.cause
