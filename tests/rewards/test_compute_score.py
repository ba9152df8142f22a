"""Laws of `compute_score` over every verifier: gold is worth 1, a plausible wrong answer less, garbage nothing."""

import json
import math
from typing import get_args

import pytest

import rewards
from rewards import compute_score, registry
from rewards.sandbox import InfrastructureError
from rewards.verdict import ErrorKind, Verdict
from tests.rewards.results import number_of

pytestmark = pytest.mark.slow  # with the sandbox

KEYS = {
    "score", "acc", "visible_acc", "format", "error", "pass_ratio", "feasible", "quality", "repeat", "guard",
    "judge_seconds", "busy_seconds",
}  # fmt: skip
GARBAGE = [
    "",
    "  \n",
    "((((",
    "\x00",
    "```python\n```",
    "def f(:",
    "SELECT",
    "é漢🙂",
    "lambda",
    "x" * 100_000,
    "[" * 5000,
    "-" * 5000,
]


async def test_the_gold_answer_is_worth_one(problem):
    result = await compute_score(problem.verifier, problem.gold, problem.truth().model_dump_json())
    assert result.keys() == KEYS
    assert {key: result[key] for key in ("score", "acc", "format", "error", "pass_ratio")} == {
        "score": 1.0,
        "acc": 1.0,
        "format": 1.0,
        "error": "none",
        "pass_ratio": 1.0,
    }


async def test_an_answer_with_one_part_misread_is_worth_less(problem):
    truth = problem.truth().model_dump_json()
    for wrong in problem.wrong[::4]:
        result = await compute_score(problem.verifier, wrong, truth)
        assert result.keys() == KEYS
        assert (result["acc"], result["format"], result["error"]) == (0.0, 1.0, "wrong_answer"), wrong
        score = number_of(result, "score")
        if problem.verifier == "countdown":  # no tests; right numbers with another value are worth `countdown_numbers`
            assert (score, result["pass_ratio"]) == (0.2, 0.0), wrong
        else:
            assert score == number_of(result, "pass_ratio") < 1.0, wrong
        strict = await compute_score(problem.verifier, wrong, truth, partial_credit=False)
        assert strict["score"] == 0.0


@pytest.mark.parametrize("skill", ["write", "trace", "sql"])
async def test_garbage_is_worth_nothing_and_never_raises(skill, problems_by_skill):
    problem = problems_by_skill[skill]
    truth = problem.truth().model_dump_json()
    for garbage in GARBAGE:
        result = await compute_score(problem.verifier, garbage, truth)
        assert result.keys() == KEYS
        assert (result["score"], result["acc"], result["pass_ratio"]) == (0.0, 0.0, 0.0), garbage
        assert result["error"] in ("extract", "syntax", "runtime"), garbage


@pytest.fixture(scope="module")
def problems_by_skill():
    from tests.rewards.conftest import sample_problems

    return {problem.skill: problem for problem in sample_problems(1)}


async def test_an_unknown_verifier_is_refused_with_the_valid_names():
    with pytest.raises(ValueError, match=r"unknown verifier 'poetry' .*; valid ones: calls, code, .*, trace, tsp"):
        await compute_score("poetry", "x", "{}")


async def test_what_verl_hands_in_is_no_setting_and_other_extras_are_refused_every_time():
    answer = ("trace", "3", '{"expected": "3"}', {"index": 1})
    result = await compute_score(*answer, reward_router_address=None, reward_model_tokenizer=None)
    assert result["score"] == 1.0
    for _ in range(2):
        with pytest.raises(ValueError, match=r"unknown reward setting 'partal_credit'; valid ones: partial_credit, "):
            await compute_score(*answer, partal_credit=False)


async def test_each_answer_is_judged_by_its_own_settings():
    row = json.dumps({"numbers": [3, 5], "target": 8})
    scores = [
        (await compute_score("countdown", "<answer>3*5</answer>", row, countdown_numbers=amount))["score"]
        for amount in (0.3, 0.4, 0.4, 0.3)
    ]
    assert scores == [0.3, 0.4, 0.4, 0.3]


@pytest.mark.parametrize(
    "failure", [InfrastructureError("down"), RuntimeError("a mistake of ours"), ZeroDivisionError()]
)
async def test_a_failure_of_the_machinery_is_no_reward(monkeypatch, caplog, failure):
    monkeypatch.setattr(rewards, "_logged_failures", set())

    async def judge(response, truth, settings):
        raise failure

    broken = registry.Verifier("trace", registry.get("trace").truth, judge)
    monkeypatch.setitem(registry._VERIFIERS, "trace", broken)
    results = [await compute_score("trace", "3", '{"expected": "3"}') for _ in range(3)]
    for result in results:
        assert result.keys() == KEYS
        assert math.isnan(number_of(result, "score"))
        assert (result["error"], result["acc"], result["format"]) == ("infrastructure", 0.0, 0.0)
    assert len(caplog.records) == 1, "logged once"
    assert type(failure).__name__ in caplog.text


async def test_a_ground_truth_that_cannot_be_read_is_no_reward(monkeypatch):
    monkeypatch.setattr(rewards, "_logged_failures", set())
    result = await compute_score("trace", "3", '{"expected": "3')
    assert math.isnan(number_of(result, "score"))
    assert result["error"] == "infrastructure"


def test_every_error_that_a_verdict_may_name_is_in_the_contract():
    assert set(get_args(ErrorKind)) == {
        "none", "extract", "syntax", "runtime", "timeout", "wrong_answer", "infeasible", "infrastructure"
    }  # fmt: skip


def test_a_verifier_is_registered_once():
    with pytest.raises(ValueError, match="'trace' is already registered"):
        registry.register(registry.get("trace"))


def test_partial_credit_is_the_share_and_all_or_nothing_is_not():
    assert Verdict.of_ratio(0.5).score == 0.5
    assert Verdict.of_ratio(0.5, partial_credit=False).score == 0.0
    assert Verdict.of_ratio(1.0, partial_credit=False).score == 1.0
