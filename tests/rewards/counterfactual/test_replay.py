"""Credits in closed form on constructed problems, and reasons for a step to have none."""

import asyncio
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.counterfactual.methods import even_blocks, step_order
from rewards.counterfactual.plan import PREFIXES, Plan
from rewards.counterfactual.replay import Sibling, estimate
from rewards.counterfactual.replayer import LONGEST, MOST, Outcome, TimedOut, changed_lines
from rewards.counterfactual.segments import segment
from rewards.counterfactual.siblings import of_programs
from rewards.counterfactual.step_keys import state_keys

LINES = ["a = 1", "b = 2", "c = 3", "d = 4"]
PROGRAM = "\n".join(LINES)


def credits_of(reward, solution=PROGRAM, siblings=(), seed=0, **plan):
    """Credits under a reward that is a function of the set of lines present."""

    async def verify(changed):
        return reward(set(changed.splitlines()))

    options = {"budget": 100} | plan
    score = reward(set(solution.splitlines()))
    return asyncio.run(
        estimate(
            solution,
            verify,
            Plan(**options),
            score=score,
            rng=random.Random(seed),
            siblings=[each if isinstance(each, Sibling) else Sibling(each) for each in siblings],
        )
    )


def present(*indices):
    return lambda lines: float(all(LINES[index] in lines for index in indices))


WEIGHTS = [0.1, 0.2, 0.3, 0.4]


def additive(lines):
    return sum(weight for weight, line in zip(WEIGHTS, LINES, strict=True) if line in lines)


def test_and_of_two_steps_gives_each_of_them_all():
    assert credits_of(present(0, 1)).values == [1, 1, 0, 0]


def test_all_or_nothing_a_step_has_all_of_the_reward_or_nothing():
    assert credits_of(additive, all_or_nothing=True).values == [1, 1, 1, 1]
    assert credits_of(additive, "\n".join(LINES[:3]), all_or_nothing=True).values == [0, 0, 0]
    cuts = {"methods": ("truncate",), "all_or_nothing": True}
    assert credits_of(additive, **cuts).values == [0, 0, 0, 1]


@pytest.mark.slow
@given(*[st.lists(st.sampled_from("abc"), max_size=4)] * 4)
def test_changed_lines_are_what_lies_between_equal_beginnings_and_ends(first, cut, put, last):
    old, new = first + cut + last, first + put + last
    without, instead = changed_lines(tuple(old), tuple(new))
    gone, came = without.split("\n") if without else [], instead.split("\n") if instead else []
    fits = [start for start in range(len(old) + 1) if old[:start] + came + old[start + len(gone) :] == new]
    assert any(old[start : start + len(gone)] == gone for start in fits)
    assert len(gone) <= len(cut) or not cut
    assert changed_lines("\n".join(old), "\n".join(new)) == (without, instead)


def test_changed_lines_are_cut_to_their_length_and_fit_into_a_file():
    assert changed_lines("a\n" * 5000, "") == (("a\n" * LONGEST)[:LONGEST] + " ...", "")
    assert changed_lines("x = 1", "x = '\ud800'") == ("x = 1", "x = '\\ud800'")


def replays_of(reward, **plan):
    return [(one.change, one.step, one.without, one.instead) for one in credits_of(reward, **plan).replayed]


def test_each_replay_is_kept_for_a_reader_with_the_steps_that_it_tells_of():
    half = credits_of(additive, methods=("delete",), budget=2, choice="uniform", seed=1)
    steps = [index for index, value in enumerate(half.values) if not math.isnan(value)]
    assert len(steps) == 2
    assert [one[:4] for one in half.replayed] == [("step", step, LINES[step], "") for step in steps]
    assert [one.score for one in half.replayed] == pytest.approx([1 - WEIGHTS[step] for step in steps])
    sibling = "\n".join([*LINES[:3], "d = 5"])
    replaced = replays_of(lambda lines: float("d = 5" in lines), siblings=[sibling], methods=("replace",))
    assert ("step", 3, "d = 4", "d = 5") in replaced
    cuts = replays_of(additive, methods=("truncate",), budget=2)
    assert cuts == [("cut", 0, "\n".join(LINES), ""), ("cut", 2, "\n".join(LINES[2:]), "")]
    several = replays_of(additive, methods=("shapley",), budget=100)
    assert {(change, step) for change, step, _, _ in several} == {("several", -1)}
    assert len(several) == 15  # all coalitions of four steps but that of all


def test_a_continuation_is_compared_with_what_the_policy_wrote():
    written = "def f(a,b):\n a+=3\n return a,b"

    async def verify(changed):
        return 1.0

    async def resume(cut):
        return written[:cut] + "\n return b,a"

    plan = Plan(methods=("resample",), budget=3)
    found = asyncio.run(estimate(written, verify, plan, score=1.0, resume=resume)).replayed
    assert [(one.change, one.step) for one in found] == [("cut", 0), ("cut", 1), ("cut", 2)]
    assert "def f(a,b):" in found[0].without
    assert all("(a, b)" not in one.without for one in found)  # no layout that nobody wrote
    assert found[2].instead.strip().endswith("return b,a")


def test_a_replay_says_its_verdict_in_each_test_or_why_it_has_none():
    def rewarding(lines):
        if LINES[1] not in lines:
            raise TimedOut
        if LINES[2] not in lines:
            raise ConnectionError
        passed = tuple(line in lines for line in LINES)
        return Outcome(sum(passed) / 4, passed)

    async def verify(changed):
        return rewarding(set(changed.splitlines()))

    score = Outcome(1.0, (True,) * 4)
    found = asyncio.run(estimate(PROGRAM, verify, Plan(budget=4, check_flaky=False), score=score)).replayed
    assert [(one.tests, one.cause) for one in found] == [
        ("0111", ""), ("", "time limit"), ("", "not judged"), ("1110", ""),
    ]  # fmt: skip


def test_all_or_nothing_single_tests_are_not_known_to_credits_but_to_readers():
    async def verify(changed):
        passed = tuple(line in changed.splitlines() for line in LINES)
        return Outcome(sum(passed) / 4, passed)

    plan = Plan(check_flaky=False, all_or_nothing=True)
    found = asyncio.run(estimate(PROGRAM, verify, plan, score=Outcome(1.0, (True,) * 4)))
    assert found.values == [1, 1, 1, 1]
    assert found.tests.shape == (4, 0)
    assert [(one.score, one.tests) for one in found.replayed][:2] == [(0.75, "0111"), (0.75, "1011")]


@pytest.mark.slow
def test_a_sample_keeps_as_many_replays_as_a_reader_can_use():
    program = "\n".join(f"x{number} = {number}" for number in range(50))
    assert len(credits_of(lambda lines: len(lines) / 50, program).replayed) == MOST


def test_either_of_two_steps_alone_is_redundant():
    assert credits_of(lambda lines: float(LINES[0] in lines or LINES[1] in lines)).values == [0, 0, 0, 0]


def test_additive_rewards_give_the_weights_with_every_method():
    for method in ("delete", "truncate", "shapley"):
        assert credits_of(additive, methods=(method,)).values == pytest.approx(WEIGHTS), method


def test_a_harmful_step_has_a_negative_credit():
    assert credits_of(lambda lines: 1.0 - 0.5 * (LINES[2] in lines)).values == [0, 0, -0.5, 0]


def test_a_solution_that_fails_in_every_replay_has_no_credit_to_give():
    assert credits_of(lambda lines: 0.0).values == [0, 0, 0, 0]


def table_reward(table):
    """A reward that is any function of the set of lines present."""
    return lambda lines: table[sum((line in lines) << index for index, line in enumerate(LINES))]


TABLES = st.lists(st.floats(0, 1), min_size=16, max_size=16)


@pytest.mark.slow
@given(TABLES, st.sampled_from(["truncate", "shapley"]), st.integers(1, 12), st.integers(0, 5))
def test_truncation_telescopes_and_shapley_is_efficient_at_every_budget(table, method, budget, seed):
    found = credits_of(table_reward(table), methods=(method,), budget=budget, seed=seed)
    assert sum(found.values) == pytest.approx(table[15] - table[0])
    assert found.replays <= max(budget, 1)


@pytest.mark.slow
@given(TABLES, st.sampled_from(["delete", "truncate", "shapley"]), st.integers(0, 5))
def test_the_same_seed_gives_the_same_credits(table, method, seed):
    first, second = (credits_of(table_reward(table), methods=(method,), budget=3, seed=seed) for _ in range(2))
    assert first.values == pytest.approx(second.values, nan_ok=True)


UNTIDY = "a = 1;b = 2\nc = 3"


def tidy_and_complete(text):
    """A third each for the first line, the second, and a layout with one statement per line."""
    return (("a = 1" in text) + ("b = 2" in text) + (";" not in text)) / 3


def untidy_credits(reward=tidy_and_complete, solution=UNTIDY, siblings=(), **plan):
    seen = []

    async def verify(text):
        seen.append(text)
        return reward(text)

    options = Plan(**{"budget": 100} | plan)
    found = asyncio.run(estimate(solution, verify, options, score=reward(solution), siblings=[*map(Sibling, siblings)]))
    return found, seen


@pytest.mark.parametrize("check_flaky", [True, False])
@pytest.mark.parametrize("method", ["delete", "truncate", "shapley"])
def test_layout_that_replays_change_is_no_credit_of_any_step(method, check_flaky):
    found, seen = untidy_credits(methods=(method,), check_flaky=check_flaky)
    assert found.values == pytest.approx([1 / 3, 1 / 3, 0])
    assert seen[0] == "a = 1\nb = 2\nc = 3"
    assert seen.count(UNTIDY) == check_flaky  # its layout may be what differs, or it is flaky


def test_layout_that_does_not_count_costs_no_further_run():
    found, seen = untidy_credits(lambda text: float("a = 1" in text))
    assert found.values == [1, 0, 0]
    assert len(seen) == 1 + 3


def test_a_header_that_is_replaced_keeps_the_layout_of_the_other_replays():
    solution, sibling = "a = 1;b = 2\nif a:\n    c = 3", "a = 1;b = 2\nif b:\n    c = 3"
    found, _ = untidy_credits(solution=solution, siblings=[sibling], methods=("replace",))
    assert found.values[2] == 0


def test_a_solution_that_is_flaky_in_its_own_layout_gets_no_credit():
    answers = iter([1.0, 0.0])

    async def verify(text):
        return next(answers)

    found = asyncio.run(estimate(UNTIDY, verify, Plan(), score=2 / 3))
    assert found.cause == "flaky"


def test_replace_compares_with_what_a_sibling_wrote_there():
    found = credits_of(present(0), siblings=["a = 9\nb = 2\nc = 3\nd = 4"], methods=("replace",))
    assert found.values[0] == 1
    assert all(map(math.isnan, found.values[1:]))
    assert (found.asked, found.invalid, found.replays) == (1, 0, 1)  # the others are the same in both


def test_the_budget_takes_the_longest_steps_first_and_the_rest_goes_without():
    solution = "a = 1\nlong_name = 2\nc = 3\nlonger_name = 4"
    found = credits_of(lambda lines: 1.0, solution=solution, budget=2)
    assert [math.isnan(value) for value in found.values] == [True, False, True, False]
    assert found.replays == 2


def test_equally_long_steps_are_drawn_alike_in_all_siblings_and_none_is_always_last():
    first, second = ("\n".join(f"{name} = {value}" for name in "abcdefgh") for value in (1, 2))
    own, (other,) = of_programs(first, [Sibling(second)], "line", False)
    reached: set[str] = set()
    for shared in map(str, range(60)):
        taken = [
            {each.keys[index] for index in step_order(segment(text, "line"), each, [], "longest", draw, shared)[:3]}
            for text, each, draw in ((first, own, random.Random(1)), (second, other, random.Random(2)))
        ]
        assert taken[0] == taken[1]
        reached |= taken[0]
    assert reached == set(own.keys)
    assert len(reached) == 8


def test_uniform_choice_reaches_every_step():
    text = "\n".join(f"a{index} = {index}" for index in range(10))
    steps = segment(text, "line")
    own, _ = of_programs(text, [], "line", False)
    drawn = [step_order(steps, own, [], "uniform", random.Random(seed)) for seed in range(200)]
    assert {index for order in drawn for index in order[:3]} == set(range(10))
    assert all(sorted(order) == list(range(10)) for order in drawn)


def test_a_flaky_program_gets_no_credit():
    answers = iter([0.0, 1.0, 1.0, 1.0, 1.0])

    async def verify(changed):
        return next(answers)

    found = asyncio.run(estimate(PROGRAM, verify, Plan(), score=1.0))
    assert found.cause == "flaky"
    assert all(map(math.isnan, found.values))


@pytest.mark.parametrize("score", [None, math.inf])
def test_a_verifier_that_cannot_run_masks_the_credit_and_does_not_zero_it(score):
    async def verify(changed):
        if "b = 2" not in changed and score is None:
            raise ConnectionError("the sandbox is down")
        return 1.0 if "b = 2" in changed else score

    found = asyncio.run(estimate(PROGRAM, verify, Plan(), score=1.0))
    assert [math.isnan(value) for value in found.values] == [False, True, False, False]
    assert (found.unjudged, found.cause) == (1, "")


@pytest.mark.parametrize(("check_flaky", "cause"), [(True, "unjudged"), (False, "no_valid_replay")])
def test_a_verifier_that_is_down_leaves_every_step_without_a_credit(check_flaky, cause):
    async def verify(changed):
        raise ConnectionError("the sandbox is down")

    found = asyncio.run(estimate(PROGRAM, verify, Plan(check_flaky=check_flaky), score=1.0))
    assert all(map(math.isnan, found.values))
    assert (found.cause, found.unjudged) == (cause, 0 if check_flaky else 4)  # of the replays


@pytest.mark.parametrize("method", ["delete", "truncate", "shapley"])
@pytest.mark.slow
def test_a_solution_of_thousands_of_statements_costs_no_more_replays_than_others(method):
    solution = "\n".join(f"if a{number}:\n b{number}=1" for number in range(950))
    found = credits_of(lambda lines: 0.5, solution=solution, methods=(method,), budget=4)
    assert len(found.steps) == len(found.values) == 1900
    assert 0 < found.replays <= 5


@pytest.mark.parametrize(
    ("solution", "cause"),
    [
        ("", "no_steps"),
        ("a = 1", "one_step"),
        ("x=1\n" * 3000, "no_s"),
        ("def f(:", "unparsable"),
        ("text\n```python\na = (\n```", "unparsable"),
    ],
)
def test_solutions_without_several_steps_say_why(solution, cause):
    found = credits_of(lambda lines: 1.0, solution=solution)
    assert found.cause.startswith(cause)
    assert found.replays == 0


@pytest.mark.parametrize(
    ("solution", "broken", "culprit"),
    [
        ("a = 1\nb = (\nc = 2\nd = 3", "b = (", 1),
        ("a = 1\nb = 2 +\nc = 3\nd = 4", "b = 2 +", 1),
        ("text\n```python\na = 1\nif a:\n  c c\n  b = 2\n```\n", "  c c", 2),
        ("\n".join([*(f"name{number} = {number}" for number in range(40)), "x =", "y = 1"]), "x =", 40),
    ],
)
def test_the_line_that_breaks_a_program_costs_what_the_rest_earns(solution: str, broken: str, culprit: int):
    """However many lines there are, the budget goes to that line first."""
    found = credits_of(lambda lines: 0.0 if broken in lines else 0.75, solution=solution, budget=3)
    known = {number: value for number, value in enumerate(found.values) if math.isfinite(value)}
    assert known.pop(culprit) == -0.75
    assert list(known.values()) == [0.0, 0.0]
    assert found.cause == ""
    assert set(found.keys) == {""}  # nothing says which line of a sibling it is


@pytest.mark.parametrize(
    ("options", "message"),
    [({"budget": 0}, "at least 1"), ({"methods": ("guess",)}, "valid: delete"), ({"choice": "best"}, "valid: longest")],
)
def test_a_plan_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Plan(**options)


@pytest.mark.slow
@given(st.integers(1, 50), st.integers(1, 20))
def test_blocks_cover_all_steps_evenly(steps, blocks):
    found = even_blocks(steps, blocks)
    assert [step for block in found for step in block] == list(range(steps))
    assert len(found) == min(steps, blocks)
    assert max(map(len, found)) - min(map(len, found)) <= 1


ACTIONS = ["one", "two", "three"]
TURNS = [(0, 3), (10, 13), (20, 25)]
TRAJECTORY = "one" + "." * 7 + "two" + "." * 7 + "three"


def turn_credits(reward, siblings=(), **plan):
    """Credits of three turns under a reward that is a function of the actions that remain."""

    async def verify(actions):
        return reward(actions)

    return asyncio.run(
        estimate(
            TRAJECTORY, verify, Plan(unit="turn", **plan), score=reward(tuple(ACTIONS)), turns=TURNS, siblings=siblings
        )
    )


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        # The last action counts: the earlier ones have no direct effect, truncation shows what each one gained.
        ("delete", [0.0, 0.0, 0.5]),
        ("truncate", [0.25, 0.25, 0.5]),
        ("shapley", None),
    ],
)
def test_turns_are_replayed_as_the_actions_that_remain(method, expected):
    worth = {(): 0.0, ("one",): 0.25, ("two",): 0.5, ("three",): 1.0}
    seen = []

    def reward(actions):
        seen.append(actions)
        return worth[actions[-1:]]

    found = turn_credits(reward, methods=(method,), budget=100)
    if method == "shapley":  # sampled: what holds whatever the orders were
        assert sum(found.values) == pytest.approx(1.0)
        assert found.values[2] == max(found.values)
    else:
        assert found.values == expected
    assert [(step.start, step.end) for step in found.steps] == TURNS
    assert all(actions == tuple(sorted(actions, key=ACTIONS.index)) for actions in seen)


def test_an_agent_that_is_right_in_its_first_turn_has_a_credit_to_compare_with():
    async def verify(actions):
        return float("good" in actions)

    plan = Plan(("truncate",), unit="turn", budget=3)
    found = asyncio.run(estimate("good", verify, plan, score=1.0, turns=[(0, 4)]))
    assert (found.values, found.cause) == ([1.0], "")
    assert found.keys == state_keys("bad|good", [(0, 3), (4, 8)])[:1]


STATES = tuple(state_keys(TRAJECTORY, TURNS))


def test_a_turn_is_replaced_by_what_a_sibling_did_in_the_same_state():
    elsewhere = (STATES[0], "another state")
    found = turn_credits(
        lambda actions: 0.5 * ("one" in actions) + 0.5 * ("two" in actions),
        siblings=[Sibling(("one", "zwei"), 0.5, STATES[:2]), Sibling(("uno", "dos"), 0.0, elsewhere)],
        methods=("replace",),
        budget=3,
    )
    assert found.values[:2] == [0.5, 0.5]
    assert math.isnan(found.values[2])  # no sibling came to this state
    assert (found.replays, found.keys) == (2, list(STATES))


def resampled(policy, reward=additive, **plan):
    """Credits of PROGRAM with a policy that continues any of its prefixes; the prefixes that it was given."""
    prefixes = []

    async def resume(cut):
        prefixes.append(PROGRAM[:cut])
        return policy(PROGRAM[:cut])

    async def verify(changed):
        return reward(set(changed.splitlines()))

    chosen: dict[str, Any] = {"methods": ("resample",), "budget": 100} | plan
    options = Plan(**chosen)
    score = reward(set(LINES))
    return asyncio.run(estimate(PROGRAM, verify, options, score=score, resume=resume)), prefixes


def test_resampling_credits_a_step_with_what_it_does_to_the_policys_own_continuations():
    # This policy writes the last line wherever it goes on: the solution's own last line earned nothing.
    found, prefixes = resampled(lambda prefix: prefix + LINES[3])
    assert prefixes == ["", "a = 1\n", "a = 1\nb = 2\n", "a = 1\nb = 2\nc = 3\n"]
    assert found.values == pytest.approx([0.1, 0.2, 0.3, 0.0])
    assert sum(found.values) == pytest.approx(additive(set(LINES)) - additive({LINES[3]}))


def test_the_budget_of_resampling_counts_continuations_and_values_are_their_means():
    outcomes = iter([0.0, 1.0, 0.5, 0.5, 1.0, 1.0])
    found, prefixes = resampled(
        lambda prefix: "", lambda lines: 1.0 if lines else next(outcomes), budget=5, continuations=2
    )
    assert prefixes == ["", "", "a = 1\nb = 2\n", "a = 1\nb = 2\n"]  # two blocks, two continuations each
    assert found.replays == 4
    assert found.values == pytest.approx([0.0, 0.0, 0.25, 0.25])


@pytest.mark.slow
@given(TABLES, TABLES, st.integers(2, 12), st.integers(1, 2))
def test_adaptive_prefixes_telescope_whatever_the_policy_writes(table, direct, budget, continuations):
    """The policy's continuations, which hold an x, have other rewards than solutions with a step deleted."""
    answers = {"\n".join(LINES[:count]): table[count] for count in range(5)}

    def reward(lines):
        return answers["\n".join(sorted(lines - {"x"}))] if "x" in lines else table_reward(direct)(lines)

    plan = {"prefixes": "adaptive", "budget": budget, "continuations": continuations}
    found, prefixes = resampled(lambda prefix: prefix + "x", reward, **plan)
    assert sum(found.values) == pytest.approx(direct[15] - table[0])
    assert found.replays <= max(budget, continuations)
    assert prefixes[0] == ""


def test_direct_effects_say_what_each_step_of_a_block_is_worth():
    found, prefixes = resampled(lambda prefix: prefix, prefixes="adaptive", budget=7)  # four deletions, three values
    assert len(prefixes) == 3
    assert found.values == pytest.approx(WEIGHTS)


def test_a_further_value_goes_where_direct_effects_do_not_explain_the_change():
    # A plan: without it the solution is as good, but this policy goes on well only after it.
    found, prefixes = resampled(
        lambda prefix: prefix + ("good" if LINES[1] in prefix else "bad"),
        lambda lines: float("bad" not in lines and bool({"good", LINES[3]} & lines)) if lines else 0.0,
        prefixes="adaptive", budget=8,
    )  # fmt: skip
    assert prefixes == ["", "a = 1\nb = 2\nc = 3\n", "a = 1\n", "a = 1\nb = 2\n"]
    assert found.values == [0, 1, 0, 0]  # the last line has a direct effect, but the policy does without it


def drawn_credits(seed: int, prefixes: str) -> tuple[list[float], int]:
    """Credits of eight lines, each right with chance 0.6 under the policy, and the lines that it wrote for them."""
    rng, lines, tokens = random.Random(seed), [f"v{index} = {right}" for index, right in enumerate(EIGHT)], 0

    async def verify(changed):
        return sum(f"v{index} = 1" in changed for index in range(8)) / 8

    async def resume(cut):
        nonlocal tokens
        kept = "\n".join(lines)[:cut]
        new = [f"v{index} = {int(rng.random() < 0.6)}" for index in range(kept.count("\n"), 8)]
        tokens += len(new)
        return kept + "\n".join(new)

    plan = Plan(methods=("resample",), budget=16, continuations=2, prefixes=prefixes, check_flaky=False)  # type: ignore[arg-type]
    found = asyncio.run(estimate("\n".join(lines), verify, plan, score=sum(EIGHT) / 8, resume=resume))
    return found.values, tokens


EIGHT = (1, 0, 1, 1, 0, 1, 1, 1)


@pytest.mark.slow
def test_deletions_as_a_control_variate_keep_the_mean_and_take_variance_and_tokens():
    """A line's total effect is (1 - 0.6) / 8 if it is right, else -0.6 / 8: it has no effect on what follows."""
    effect = (np.array(EIGHT) - 0.6) / 8
    runs = {prefixes: [drawn_credits(seed, prefixes) for seed in range(225)] for prefixes in PREFIXES}
    values = {prefixes: np.array([found for found, _ in drawn]) for prefixes, drawn in runs.items()}
    tokens = {prefixes: np.mean([count for _, count in drawn]) for prefixes, drawn in runs.items()}
    error = {prefixes: np.abs(one.mean(0) - effect) for prefixes, one in values.items()}
    for prefixes in ("even", "effects"):
        assert (error[prefixes] < 4 * values[prefixes].std(0) / 15).all()
    assert error["adaptive"].max() < 0.025  # cuts that depend on the values cost a bias
    variance = {prefixes: one.var(0).mean() for prefixes, one in values.items()}
    assert max(variance["effects"], variance["adaptive"]) < 0.5 * variance["even"]
    assert max(tokens["effects"], tokens["adaptive"]) < 0.7 * tokens["even"]


def test_an_engine_that_cannot_be_asked_leaves_its_blocks_without_credit():
    def policy(prefix):
        if prefix.endswith("b = 2\n"):
            raise ConnectionError
        return prefix + LINES[3]

    found, _ = resampled(policy)
    assert [math.isnan(value) for value in found.values] == [False, True, True, False]
    assert found.unjudged == 1


@pytest.mark.parametrize("plan", [{"unit": "turn"}, {"continuations": 5, "budget": 4}, {"continuations": 0}])
def test_plans_of_resampling_that_cannot_be_made_are_refused(plan):
    with pytest.raises(ValueError, match=r"method|continuations"):
        Plan(methods=("resample",), **plan)
