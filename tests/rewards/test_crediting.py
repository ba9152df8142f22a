"""The service of a reward worker: siblings, cache, saved budget, tokens; and that it never costs a reward."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest

from data_prep.micro_model import make_tokenizer
from rewards.crediting import CreditService, Sample, reward_of
from rewards.environments import Observation
from rewards.groups import GroupBoard
from rewards.replay import Plan

TOKENIZER = make_tokenizer()
PROGRAM = "a = 1\nb = 2"


def sample(number=0, text=PROGRAM, ratio=0.5, group="g", **info):
    ids = [*TOKENIZER.encode(text), TOKENIZER.eos_token_id]
    return Sample(group, number, ["code", "truth"], text, ids, {"score": 0.0, "pass_ratio": ratio} | info)


class Judge:
    """Half of the reward for each of the two lines; counts what it judges."""

    def __init__(self):
        self.calls = 0

    async def __call__(self, changed):
        self.calls += 1
        ratio = 0.5 * ("a = 1" in changed) + 0.5 * ("b = 2" in changed)
        return {"score": 0.0, "pass_ratio": ratio, "busy_seconds": 0.25}


def service(size=1, **options):
    return CreditService(Plan(**options.pop("plan", {})), GroupBoard(size, patience=0.2), **options)


def run(*samples, service, judge):
    async def together():
        return await asyncio.gather(*(service.credit(one, TOKENIZER, judge) for one in samples))

    return asyncio.run(together())


def test_credits_come_with_the_step_of_every_token():
    (found,) = run(sample(ratio=1.0), service=service(skip_equal_groups=False), judge=Judge())
    assert found["credit_values"].tolist() == [0.5, 0.5]
    assert found["credit_steps"].tolist() == [0] * 5 + [-1] + [1] * 5 + [-1]
    assert found["credit_spans"].tolist() == [[0, 5], [6, 11]]
    assert (found["credit_cause"], found["credit_replays"], found["credit_asked"]) == ("", 2, 2)


def test_a_group_that_scored_alike_is_not_replayed_and_leaves_its_budget_to_others():
    judge, group = Judge(), [sample(number, ratio=1.0) for number in range(2)]
    credits = service(size=2, plan={"budget": 1})
    for found in run(*group, service=credits, judge=judge):
        assert found["credit_cause"] == "equal_group"
        assert found["credit_steps"].tolist() == [-1] * 12
    assert judge.calls == 0
    others = [sample(0, ratio=1.0, group="h"), sample(1, text="a = 1\nb = 3", ratio=0.5, group="h")]
    found = run(*others, service=credits, judge=judge)
    assert [np.isfinite(one["credit_values"]).sum() for one in found] == [2, 2]


def test_equal_programs_of_a_step_are_verified_once():
    judge = Judge()
    group = [sample(number, ratio=1.0) for number in range(4)] + [sample(4, text="x = 1", ratio=0.0)]
    found = run(*group, service=service(size=5), judge=judge)
    assert judge.calls == 3  # the program itself, and without each line
    assert sum(one["credit_cache_hits"] for one in found) == 9
    assert sum(one["credit_requests"] for one in found) == 12  # of four samples: the check and two replays
    assert sum(one["credit_busy_seconds"] for one in found) == 0.75  # what the cache knew cost nothing


async def test_equal_answers_of_a_group_are_verified_once_and_checked_for_flakiness_all_the_same():
    judge, credits = Judge(), service(skip_equal_groups=False)
    equal = await asyncio.gather(*(credits.verdict("g", PROGRAM, judge) for _ in range(3)))
    assert judge.calls == 1
    assert [info["pass_ratio"] for info in equal] == [1.0] * 3
    assert sorted(info["busy_seconds"] for info in equal) == [0.0, 0.0, 0.25]
    equal[0]["score"] = 7.0  # each sample has its own
    assert (await credits.verdict("g", PROGRAM, judge))["score"] == 0.0
    await credits.verdict("g", "a = 1", judge)
    await credits.verdict("another problem", PROGRAM, judge)
    assert judge.calls == 3
    await credits.credit(sample(ratio=1.0), TOKENIZER, judge)
    assert judge.calls == 6  # the program once more, and without each line


async def test_an_answer_that_could_not_be_judged_is_not_taken_for_its_equals():
    outcomes = iter([{"score": math.nan, "error": "infrastructure"}, *[{"score": 1.0, "error": "none"}] * 3])

    async def judge(answer):
        await asyncio.sleep(0.01)
        return next(outcomes)

    credits = service()
    together = await asyncio.gather(*(credits.verdict("g", "x", judge) for _ in range(3)))
    assert [info["error"] for info in together] == ["infrastructure", "none", "none"]
    assert (await credits.verdict("g", "x", judge))["error"] == "none"


def test_siblings_that_never_come_are_not_waited_for_forever():
    (found,) = run(sample(ratio=1.0), service=service(size=8), judge=Judge())
    assert found["credit_values"].tolist() == [0.5, 0.5]


def test_a_masked_sample_has_no_credit_and_does_not_count_as_a_different_score():
    group = [sample(0, ratio=1.0), sample(1, ratio=math.nan, error="infrastructure")]
    found = run(*group, service=service(size=2), judge=Judge())
    assert [one["credit_cause"] for one in found] == ["equal_group", "equal_group"]
    (alone,) = run(group[1], service=service(skip_equal_groups=False), judge=Judge())
    assert alone["credit_cause"] == "masked"


def test_whatever_goes_wrong_the_sample_keeps_its_reward(caplog):
    class Broken:
        async def meet(self, *arguments):
            raise ConnectionError("the board is gone")

    credits = CreditService(Plan(), Broken())
    (found,) = run(sample(), service=credits, judge=Judge())
    assert found["credit_cause"] == "failed"
    assert found["credit_reason"] == "ConnectionError: the board is gone"
    assert found["credit_steps"].tolist() == [-1] * 12
    assert "the board is gone" in caplog.text


def test_keys_are_the_same_on_every_path():
    credits = service(skip_equal_groups=False)
    paths = [sample(ratio=1.0), sample(text=""), sample(text="x = 1"), sample(error="infrastructure")]
    keys = {frozenset(found) for found in run(*paths, service=credits, judge=Judge())}
    assert len(keys) == 1


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
        run(
            sample(text=text),
            sample(1, text=PROGRAM),
            service=service(skip_equal_groups=False, plan=plan),
            judge=Judge(),
        )
        for plan in [{"choice": "uniform", "budget": 3}] * 2
    )
    assert np.array_equal(first[0]["credit_values"], second[0]["credit_values"], equal_nan=True)


class Counter:
    """An environment in which the last action is the answer, and which ends with "end"."""

    made = 0

    def __init__(self):
        type(self).made += 1
        self.played, self.answer = 0, -1

    async def act(self, action):
        self.answer, self.played = self.played, self.played + 1
        return Observation("", done=action == "end", valid=True)


def trajectory(ratio=1.0):
    """Two turns, `a = 1` and `b = 2` after it, with eight tokens of a tool between them."""
    first, tool, second = (TOKENIZER.encode(text) for text in ("a = 1", "no\nno\nno", "a = 1\nb = 2"))
    end = [TOKENIZER.eos_token_id]
    ids = [*first, *end, *tool, *second, *end]
    turns = [(0, 6), (14, len(ids))]
    text = TOKENIZER.decode(ids, skip_special_tokens=True)
    info = {"score": ratio, "pass_ratio": ratio}
    return Sample("g", 0, ["code", "truth"], text, ids, info, turns, answer=1, environment=Counter)


def test_turns_get_credit_by_replay_against_fresh_environments_and_tool_output_gets_none():
    Counter.made = 0
    plan = {"unit": "turn", "method": "truncate"}
    (found,) = run(trajectory(), service=service(skip_equal_groups=False, plan=plan), judge=Judge())
    assert found["credit_values"].tolist() == [0.5, 0.5]
    assert found["credit_steps"].tolist() == [0] * 5 + [-1] * 9 + [1] * 11 + [-1]
    assert found["credit_spans"].tolist() == [[0, 5], [13, 24]]
    assert Counter.made == 3  # the whole, nothing, and the first turn alone


def test_steps_inside_a_program_are_those_of_the_turn_that_is_the_answer():
    (found,) = run(trajectory(), service=service(skip_equal_groups=False), judge=Judge())
    assert found["credit_values"].tolist() == [0.5, 0.5]
    assert found["credit_steps"].tolist() == [-1] * 14 + [0] * 5 + [-1] + [1] * 5 + [-1]
    assert found["credit_spans"].tolist() == [[13, 18], [19, 24]]


async def test_resampling_goes_on_from_the_generated_tokens_and_counts_what_it_writes():
    given = []

    async def go_on(prefix, draw):
        given.append((TOKENIZER.decode(prefix), draw))
        return [*TOKENIZER.encode("b = 2"), TOKENIZER.eos_token_id]

    credits = service(skip_equal_groups=False, plan={"method": "resample", "continuations": 2, "budget": 8})
    found = await credits.credit(replace(sample(ratio=1.0), go_on=go_on), TOKENIZER, Judge())
    number = sample().number
    assert sorted(given) == [(prefix, (number, draw)) for prefix in ("", "a = 1\n") for draw in (1, 2)]
    assert found["credit_values"].tolist() == [0.5, 0.0]
    assert found["credit_generated"] == 24
