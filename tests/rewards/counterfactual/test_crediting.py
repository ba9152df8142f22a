"""The service of a reward worker: siblings, cache, saved budget, tokens; and that it never costs a reward."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from data_prep.micro.model import make_tokenizer
from rewards import compute_score, verifier_inputs
from rewards.counterfactual.groups import GroupBoard, group_advantage
from rewards.counterfactual.judging import reward_of
from rewards.counterfactual.plan import Plan
from rewards.counterfactual.service import CreditService, RolloutSample
from rewards.environments import Observation
from rewards.sample_credit import SampleCredit
from rewards.sandbox.client.accounting import capped, note

TOKENIZER = make_tokenizer()
PROGRAM = "a = 1\nb = 2"


def sample(number=0, text=PROGRAM, ratio=0.5, group="g", **info):
    ids = [*TOKENIZER.encode(text), TOKENIZER.eos_token_id]
    return RolloutSample(group, number, ["code", "truth"], text, ids, {"score": ratio, "pass_ratio": ratio} | info)


class Judge:
    """Gives half of the reward for each of the two lines and counts its calls."""

    def __init__(self):
        self.calls = 0

    async def __call__(self, changed):
        self.calls += 1
        ratio = 0.5 * ("a = 1" in changed) + 0.5 * ("b = 2" in changed)
        return {"score": 0.0, "pass_ratio": ratio, "busy_seconds": 0.25}


GRPO = OmegaConf.create({"adv_estimator": "grpo", "use_kl_in_reward": False})


def differ(scores):
    """The rule of group-relative estimators."""
    return len(set(scores)) > 1


def service(size=1, **options):
    return CreditService(Plan(**options.pop("plan", {})), GroupBoard(size, patience=0.2), **options)


def run(*samples, service, judge=None):
    judge = judge or Judge()

    async def together():
        return await asyncio.gather(*(service.credit(one, TOKENIZER, judge) for one in samples))

    return asyncio.run(together())


def test_credits_come_with_the_step_of_every_token():
    (found,) = run(sample(ratio=1.0), service=service())
    assert found.values.tolist() == [0.5, 0.5]
    assert found.steps.tolist() == [0] * 5 + [-1] + [1] * 5 + [-1]
    assert found.spans.tolist() == [[0, 5], [6, 11]]
    assert (found.cause, found.replays, found.asked) == ("", 2, 2)


def test_steps_of_siblings_have_equal_keys_where_they_are_the_same_step():
    texts = ["a = 1\nb = 2", "b = 3\na = 1", "def f(:"]
    group = [
        sample(number, text, ratio) for number, (text, ratio) in enumerate(zip(texts, (1.0, 0.5, 0.0), strict=True))
    ]
    found = run(*group, service=service(size=3, has_advantage=differ))
    assert [one.keys for one in found] == [["a =", "b ="], ["b =", "a ="], [""]]
    alone = run(*group, service=service())
    assert [one.keys for one in alone] == [one.keys for one in found]


def test_steps_of_other_names_have_equal_keys_where_alignment_is_asked_for():
    texts = [f"def f(n):\n    {name} = n\n    return {name} + {number}" for number, name in enumerate("kt")]
    group = [sample(number, text, 0.0) for number, text in enumerate(texts)]
    alone = [one.keys for one in run(*group, service=service(size=2))]
    assert [keys[1] for keys in alone] == ["define f/k =", "define f/t ="]
    found = run(*group, service=service(size=2, plan={"align": True}))
    assert [one.keys for one in found] == [["define f", "define f/k =", "define f/return"]] * 2
    assert [one.replays for one in found] == [3, 3]


def test_a_sibling_that_passed_shows_which_step_is_wrong():
    plan = {"methods": ("delete", "replace")}
    group = [sample(0, "b = 3\na = 1", 0.5), sample(1, "a = 1\nb = 2", 1.0)]
    wrong, passed = run(*group, service=service(size=2, has_advantage=differ, plan=plan))
    assert wrong.values.tolist() == [-0.5, 0.5]
    assert passed.values.tolist() == [0.5, 0.5]


def test_steps_that_all_siblings_have_are_left_out_and_counted():
    group = [sample(0, "b = 3\na = 1", 0.5), sample(1, "a = 1\nb = 2", 1.0), sample(2, "a = 1\nb = 2", 1.0)]
    credits = service(size=3, has_advantage=differ, plan={"choice": "informative"})
    found = run(*group, service=credits)
    assert [one.equal_steps for one in found] == [1, 1, 1]
    assert [np.isfinite(one.values).tolist() for one in found] == [[True, False]] + [[False, True]] * 2
    assert [one.replays for one in found] == [1, 1, 1]


def test_a_group_that_scored_alike_is_not_replayed_and_leaves_its_budget_to_others():
    judge, group = Judge(), [sample(number, ratio=1.0) for number in range(2)]
    credits = service(size=2, plan={"budget": 1}, has_advantage=differ)
    for found in run(*group, service=credits, judge=judge):
        assert found.cause == "equal_group"
        assert found.steps.tolist() == [-1] * 12
    assert judge.calls == 0
    others = [sample(0, ratio=1.0, group="h"), sample(1, text="a = 1\nb = 3", ratio=0.5, group="h")]
    found = run(*others, service=credits, judge=judge)
    assert [np.isfinite(one.values).sum() for one in found] == [2, 2]


def test_equal_programs_of_a_step_are_verified_once():
    judge = Judge()
    group = [sample(number, ratio=1.0) for number in range(4)] + [sample(4, text="x = 1", ratio=0.0)]
    found = run(*group, service=service(size=5, has_advantage=differ), judge=judge)
    assert judge.calls == 3  # the program itself, and without each line
    assert sum(one.cache_hits for one in found) == 9
    assert sum(one.requests for one in found) == 12  # of four samples: the check and two replays
    assert sum(one.busy_seconds for one in found) == 0.75  # what the cache knew cost nothing


async def test_equal_answers_of_a_group_are_verified_once_and_checked_for_flakiness_all_the_same():
    judge, credits = Judge(), service()
    equal = await asyncio.gather(*(credits.answers.verdict("g", PROGRAM, judge) for _ in range(3)))
    assert judge.calls == 1
    assert [info["pass_ratio"] for info in equal] == [1.0] * 3
    assert sorted(info["busy_seconds"] for info in equal) == [0.0, 0.0, 0.25]
    equal[0]["score"] = 7.0  # each sample has its own
    assert (await credits.answers.verdict("g", PROGRAM, judge))["score"] == 0.0
    await credits.answers.verdict("g", "a = 1", judge)
    await credits.answers.verdict("another problem", PROGRAM, judge)
    assert judge.calls == 3
    await credits.credit(sample(ratio=1.0), TOKENIZER, judge)
    assert judge.calls == 6  # the program once more, and without each line


async def test_an_answer_that_could_not_be_judged_is_not_taken_for_its_equals():
    outcomes = iter([{"score": math.nan, "error": "infrastructure"}, *[{"score": 1.0, "error": "none"}] * 3])

    async def judge(answer):
        await asyncio.sleep(0.01)
        return next(outcomes)

    credits = service()
    together = await asyncio.gather(*(credits.answers.verdict("g", "x", judge) for _ in range(3)))
    assert [info["error"] for info in together] == ["infrastructure", "none", "none"]
    assert (await credits.answers.verdict("g", "x", judge))["error"] == "none"


def test_siblings_that_never_arrive_are_not_waited_for_forever():
    (found,) = run(sample(ratio=1.0), service=service(size=8, has_advantage=differ))
    assert found.values.tolist() == [0.5, 0.5]
    assert found.unmet == 1


def test_a_masked_sample_has_no_credit_and_does_not_count_as_a_different_score():
    group = [sample(0, ratio=1.0), sample(1, ratio=math.nan, error="infrastructure")]
    found = run(*group, service=service(size=2, has_advantage=differ))
    assert [one.cause for one in found] == ["equal_group", "masked"]
    (alone,) = run(group[1], service=service())
    assert alone.cause == "masked"


def test_whatever_goes_wrong_the_sample_keeps_its_reward(caplog):
    class Broken:
        async def meet(self, *arguments):
            raise ConnectionError("the board is gone")

    credits = CreditService(Plan(), Broken(), has_advantage=differ)
    (found,) = run(sample(), service=credits)
    assert found.cause == "failed"
    assert found.reason == "ConnectionError: the board is gone"
    assert found.steps.tolist() == [-1] * 12
    assert "the board is gone" in caplog.text


def test_a_credit_is_read_from_the_reward_components_as_it_was_written():
    (found,) = run(sample(ratio=1.0), service=service())
    info = found.as_info()
    assert (len(info), info["credit_replays"]) == (24, 2)
    assert SampleCredit.of_info({"score": 1.0} | info) == found
    assert SampleCredit.of_info({"score": 1.0}) is None


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"score": 1.0}, 1.0),
        ({"score": 0.0, "pass_ratio": 0.5}, 0.5),
        ({"score": 1.0, "error": "infrastructure"}, None),
    ],
)
def test_the_reward_of_credit_is_the_share_of_tests(info, expected):
    value = reward_of(info)
    assert math.isnan(value) if expected is None else value == expected


def test_choices_do_not_depend_on_the_order_of_arrival():
    text = "\n".join(f"a{index} = {index}" for index in range(9))
    first, second = (
        run(sample(text=text), sample(1, text=PROGRAM), service=service(plan=plan))
        for plan in [{"choice": "uniform", "budget": 3}] * 2
    )
    assert np.array_equal(first[0].values, second[0].values, equal_nan=True)


class Counter:
    """An environment in which the last action is the answer, and which ends with "end"."""

    made = 0

    def __init__(self):
        type(self).made += 1
        self.played, self.answer = 0, -1

    async def act(self, action):
        self.answer, self.played = self.played, self.played + 1
        note(0.25)
        return Observation("", done=action == "end", valid=True)


def trajectory(ratio=1.0, number=0, texts=("a = 1", "no\nno\nno", "a = 1\nb = 2")):
    """Two turns, `a = 1` and `b = 2` after it, with eight tokens of a tool between them."""
    first, tool, second = (TOKENIZER.encode(text) for text in texts)
    end = [TOKENIZER.eos_token_id]
    ids = [*first, *end, *tool, *second, *end]
    turns = [(0, len(first) + 1), (len(first) + 1 + len(tool), len(ids))]
    text = TOKENIZER.decode(ids, skip_special_tokens=True)
    assert isinstance(text, str)
    info = {"score": ratio, "pass_ratio": ratio}
    environment: Any = Counter  # which has what replays need of one
    return RolloutSample("g", number, ["code", "truth"], text, ids, info, turns, answer=1, environment=environment)


def test_turns_in_the_same_state_have_one_key_and_are_replaced_by_what_a_sibling_did_there():
    texts = ("a = 9", "no\nno\nno", "a = 1"), ("x", "yes", "a = 1\nb = 2")
    group = [trajectory(), trajectory(0.5, 1, texts[0]), trajectory(1.0, 2, texts[1])]
    plan = {"unit": "turn", "methods": ("replace",)}
    found = run(*group, service=service(size=3, plan=plan))
    keys = [one.keys for one in found]
    assert keys[0] == keys[1]
    assert keys[0][0] == keys[2][0] != keys[2][1] != keys[0][1]
    # Only the last action counts: the second sample's is worse than what the first did in the same state.
    assert found[1].values.tolist() == [0.0, -0.5]
    assert found[0].values.tolist() == [0.0, 0.5]
    assert found[2].values[0] == 0.0
    assert math.isnan(found[2].values[1])


def test_turns_get_credit_by_replay_against_fresh_environments_and_tool_output_gets_none():
    Counter.made = 0
    plan = {"unit": "turn", "methods": ("truncate",)}
    (found,) = run(trajectory(), service=service(plan=plan))
    assert found.values.tolist() == [0.5, 0.5]
    assert found.steps.tolist() == [0] * 5 + [-1] * 9 + [1] * 11 + [-1]
    assert found.spans.tolist() == [[0, 5], [13, 24]]
    assert Counter.made == 3  # the whole, nothing, and the first turn alone
    assert (
        found.busy_seconds == 3 * 0.25 + 3 * 0.25
    )  # of the judge, and of the sandbox that the environments asked, too


def test_steps_inside_a_program_are_those_of_the_turn_that_is_the_answer():
    (found,) = run(trajectory(), service=service())
    assert found.values.tolist() == [0.5, 0.5]
    assert found.steps.tolist() == [-1] * 14 + [0] * 5 + [-1] + [1] * 5 + [-1]
    assert found.spans.tolist() == [[13, 18], [19, 24]]


async def test_resampling_continues_from_the_generated_tokens_and_counts_what_it_writes():
    given = []

    async def continue_prefix(prefix, draw):
        given.append((TOKENIZER.decode(prefix), draw))
        return [*TOKENIZER.encode("b = 2"), TOKENIZER.eos_token_id]

    credits = service(plan={"methods": ("resample",), "continuations": 2, "budget": 8})
    found = await credits.credit(replace(sample(ratio=1.0), continue_prefix=continue_prefix), TOKENIZER, Judge())
    number = sample().number
    assert sorted(given) == [(prefix, (number, draw)) for prefix in ("", "a = 1\n") for draw in (1, 2)]
    assert found.values.tolist() == [0.5, 0.0]
    assert found.generated == 24


async def test_spo_values_prefixes_at_even_token_counts_and_each_token_has_the_gain_of_its_segment():
    prefixes = []

    async def continue_prefix(prefix, draw):
        prefixes.append(TOKENIZER.decode(prefix))
        return TOKENIZER.encode("\nb = 2")

    plan = {"methods": ("resample",), "unit": "token", "budget": 4, "continuations": 2, "check_flaky": False}
    one = replace(sample(ratio=1.0), continue_prefix=continue_prefix)
    found = await service(plan=plan).credit(one, TOKENIZER, Judge())
    # Eleven tokens in segments of 5 and 6: V(nothing) = 0.5, V(`a = 1`) = 1, and R = 1.
    assert sorted(prefixes) == ["", "", "a = 1", "a = 1"]
    assert found.values.tolist() == [0.5] * 5 + [0.0] * 6
    assert found.steps.tolist() == [*range(11), -1]


def test_gigpo_returns_are_discounted_per_turn_and_need_no_replays():
    plan = {"unit": "turn", "methods": ("returns",), "discount": 0.5}
    judge, Counter.made = Judge(), 0
    at_once = replace(trajectory(1.0, 1), turns=trajectory().turns[:1], answer=0)
    found = run(trajectory(0.8), at_once, service=service(size=2, plan=plan), judge=judge)
    assert found[0].values.tolist() == pytest.approx([0.4, 0.8])
    assert found[1].values.tolist() == [1.0]  # of one turn: the others in its state are compared with it
    assert found[0].keys[0] == found[1].keys[0]
    assert (judge.calls, Counter.made) == (0, 0)
    assert [one.cause for one in found] == ["", ""]


class TimeLimited:
    """A judge whose sandbox takes 0.01 s per program, and the whole time limit for one without `b = 2`."""

    def __init__(self, own_seconds=0.01, own_times_out=False, more=0):
        self.own_seconds = own_seconds
        self.own_times_out = own_times_out
        self.more = more
        self.limits = []

    async def __call__(self, changed):
        limit = capped(5.0)
        self.limits.append(limit)
        over = self.own_times_out or "b = 2" not in changed
        seconds = limit if over else self.own_seconds
        note(seconds, timeouts=over + self.more * ("b = 2" not in changed))
        # The first failure is a wrong answer: the error does not show that a later case was over its time.
        return {"score": 0.0, "pass_ratio": float("a = 1" in changed), "error": "wrong_answer", "busy_seconds": seconds}


async def replayed(judge, text=PROGRAM):
    """Credits of one sample whose own answer was judged first, as in a run."""
    credits = service()
    info = await credits.answers.verdict("g", text, judge)
    return await credits.credit(replace(sample(text=text), info=info), TOKENIZER, judge)


async def test_replays_have_a_few_times_the_answers_own_time_and_a_time_out_is_no_failure():
    judge = TimeLimited()
    found = await replayed(judge)
    assert judge.limits == [5.0] + [0.5] * 3
    assert found.values[0] == 1.0
    assert math.isnan(found.values[1])
    assert (found.timeouts, found.unjudged, found.replays) == (1, 0, 2)
    assert found.busy_seconds == pytest.approx(0.5 + 2 * 0.01)


async def test_a_slow_continuation_is_a_failed_answer_with_the_verifiers_own_limit():
    """Half of this policy's continuations run over their time: the value of the prefix is 0.5, not 1."""
    drawn: list[int] = []

    async def continue_prefix(prefix, draw):
        drawn.append(len(drawn))
        return TOKENIZER.encode("a = 1" if len(drawn) % 2 else "a = 1\nb = 2")

    judge, credits = TimeLimited(), service(plan={"methods": ("resample",), "budget": 4, "continuations": 4})
    info = await credits.answers.verdict("g", PROGRAM, judge)
    one = replace(sample(), info=info | {"pass_ratio": 1.0}, continue_prefix=continue_prefix)

    async def judged(changed):
        found = await judge(changed)
        return found | {"pass_ratio": float("b = 2" in changed)}

    found = await credits.credit(one, TOKENIZER, judged)
    assert len(drawn) == 4
    assert judge.limits == [5.0, 0.5, 5.0, 5.0]  # the answer, its check, and two different continuations
    assert found.values.tolist() == [0.25, 0.25]
    assert (found.timeouts, found.unjudged) == (0, 0)


async def test_a_slow_answer_leaves_its_replays_as_much_time():
    judge = TimeLimited(own_seconds=0.9)
    await replayed(judge)
    assert judge.limits == [5.0] + [4.0] * 3


async def test_the_time_outs_of_an_answer_that_has_its_own_are_scores():
    judge = TimeLimited(own_times_out=True)
    found = await replayed(judge)
    assert set(judge.limits) == {5.0}
    assert found.values.tolist() == [1.0, 0.0]
    assert found.timeouts == 0


async def test_more_time_outs_than_the_answer_has_are_no_failure_of_the_step():
    found = await replayed(TimeLimited(own_times_out=True, more=1))
    assert found.values[0] == 1.0
    assert math.isnan(found.values[1])
    assert found.timeouts == 1


def test_an_answer_beside_a_program_has_its_own_credit():
    text = "```python\na = 1\n```\n\n#### 42"

    async def judge(changed):
        return {"score": float("#### 42" in changed), "error": "none"}

    one = RolloutSample("g", 0, ["gsm8k", "42"], text, TOKENIZER.encode(text), {"score": 1.0})
    (found,) = run(one, service=service(plan={"unit": "paragraph"}), judge=judge)
    assert found.values.tolist() == [0.0, 1.0]


def test_texts_that_read_the_same_are_verified_once():
    judge = Judge()
    texts = [f"{word}\n```python\n{PROGRAM}\n```" for word in ("x", "y")]
    group = [
        replace(sample(number, text), reads=lambda text: verifier_inputs("code", text))
        for number, text in enumerate(texts)
    ]
    run(*[replace(one, info={"score": 1.0, "pass_ratio": 1.0}) for one in group], service=service(), judge=judge)
    assert judge.calls == 3


def test_one_sample_a_prompt_is_credited_where_the_estimator_gives_it_an_advantage():
    rule = {"has_advantage": group_advantage(GRPO)}
    (right,) = run(sample(ratio=1.0), service=service(**rule))
    assert right.values.tolist() == [0.5, 0.5]
    (failed,) = run(sample(ratio=0.0), service=service(**rule))
    assert failed.cause == "equal_group"


def test_the_score_decides_and_not_the_share_of_tests():
    rule = {"has_advantage": group_advantage(GRPO), "size": 2}
    shaped = [
        replace(sample(number), info={"score": score, "pass_ratio": 1.0}) for number, score in enumerate([1, 1.5])
    ]
    assert [one.cause for one in run(*shaped, service=service(**rule))] == ["", ""]
    judge = Judge()
    strict = [replace(sample(number), info={"score": 0.0, "pass_ratio": number / 2}) for number in range(2)]
    assert [one.cause for one in run(*strict, service=service(**rule), judge=judge)] == ["equal_group"] * 2
    assert judge.calls == 0


def test_what_a_step_leaves_of_its_budget_is_not_for_later_steps():
    text = "\n".join(f"a{index} = {index}" for index in range(4))

    def credited(*steps):
        credits = service(size=2, plan={"budget": 1, "check_flaky": False}, has_advantage=differ)
        for number, step in enumerate(steps[:-1]):
            equal = [replace(sample(one, group=f"equal{number}"), step=step) for one in range(2)]
            run(*equal, service=credits)
        pair = [sample(0, text, 0.0, "h"), sample(1, text, 1.0, "h")]
        found = run(*(replace(one, step=steps[-1]) for one in pair), service=credits)
        return [int(np.isfinite(one.values).sum()) for one in found]

    assert credited(1, 1) == [2, 2]
    assert credited(1, 2) == [1, 1]
    assert credited(*[1] * 9, 2) == [1, 1]


async def test_a_worker_full_of_waiting_samples_lets_further_ones_continue(monkeypatch):
    monkeypatch.setattr("rewards.counterfactual.service._WAITING", 2)
    credits = CreditService(Plan(), GroupBoard(8, patience=1e9), has_advantage=differ)
    waiting = [asyncio.create_task(credits.credit(sample(number), TOKENIZER, Judge())) for number in range(2)]
    await asyncio.sleep(0)
    assert (await credits.credit(sample(2, ratio=1.0), TOKENIZER, Judge())).unmet == 1
    rest = [sample(number, ratio=1.0) for number in range(3, 8)]
    together = await asyncio.gather(*(credits.credit(one, TOKENIZER, Judge()) for one in rest), *waiting)
    assert [one.unmet for one in together] == [1, 1, 1, 1, 0, 0, 0]


@pytest.mark.slow
async def test_the_tests_that_each_step_decides_come_with_its_credit():
    """Through the real sandbox."""
    text = "def f(n):\n    if n > 1:\n        n = 1\n    return n"
    truth = '{"tests": ["assert f(0) == 0", "assert f(3) == 1", "assert f(0) == 5"]}'
    credits = service()

    async def judge(changed):
        return await compute_score("code", changed, truth)

    info = await credits.answers.verdict("g", text, judge)
    one = RolloutSample("g", 0, ["code", truth], text, TOKENIZER.encode(text), info)
    found = await credits.credit(one, TOKENIZER, judge)
    assert found.keys == ["define f", "define f/if", "define f/if/parameter 1.0 =", "define f/return"]
    assert found.tests.tolist() == [[1, 1, 0], [0, 1, 0], [0, 1, 0], [1, 1, 0]]
    assert found.values == pytest.approx([2 / 3, 1 / 3, 1 / 3, 2 / 3])
    assert found.whole.tolist() == [1, 1, 0]
    assert (found.whole - found.tests).tolist() == [[0, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]]  # of the replays
    for methods in (("truncate",), ("delete", "replace")):
        assert (await service(plan={"methods": methods}).credit(one, TOKENIZER, judge)).whole.tolist() == []


@pytest.mark.slow
async def test_a_line_without_which_the_program_never_ends_gets_no_credit_and_little_time():
    """Through the real sandbox, whose own limit is 5 s."""
    text = "def f(n):\n    i = 0\n    while i < n:\n        i += 1\n    return i"
    truth = '{"tests": ["assert f(0) == 0", "assert f(3) == 3"]}'
    credits, limits = service(), []

    async def judge(changed):
        limits.append(capped(5.0))
        return await compute_score("code", changed, truth)

    info = await credits.answers.verdict("g", text, judge)
    one = RolloutSample("g", 0, ["code", truth], text, TOKENIZER.encode(text), info)
    found = await credits.credit(one, TOKENIZER, judge)
    values = dict(zip((text[start:end] for start, end in found.spans), found.values, strict=True))
    assert math.isnan(values["i += 1"])
    assert values["return i"] == 1.0
    assert found.timeouts == 1
    assert limits[0] == 5.0
    assert max(limits[1:]) < 5.0
