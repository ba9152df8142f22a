"""Laws of every registered verifier: gold scores highest, garbage scores like an empty answer, keys never change."""

import math

import pytest

import rewards
from rewards import compute_score, registry
from rewards.sandbox import InfrastructureError
from rewards.settings import JudgeSettings
from rewards.shapes import SHAPES
from tests.rewards.examples import EXAMPLES, GARBAGE
from tests.rewards.results import number_of
from tests.rewards.test_compute_score import KEYS

# Seconds for any one answer, on a machine that is busy with others; the sandbox's limit is set to 2 below.
LIMIT = 30.0
VERIFIERS = registry.names()
# The highest and the lowest score under each shape.
BOUNDS = {
    "binary": (1.0, 0.0),
    "binary_format": (1.5, 0.0),
    "binary_format_repeat": (1.5, 0.0),
    "ratio_quality_format_repeat": (1.5, 0.0),
    "complicated": (3.0, -1.0),
}
GRAPHS = [name for name in VERIFIERS if registry.get(name).truth.__module__.startswith("rewards.verifiers.graphs")]


async def judged(name, response, **settings):
    result = await compute_score(name, response, EXAMPLES[name].row, timeout=2.0, **settings)
    assert result.keys() == KEYS
    assert number_of(result, "judge_seconds") < LIMIT
    assert result["error"] != "infrastructure"
    return {key: value for key, value in result.items() if not key.endswith("_seconds")}


def test_every_verifier_has_an_example_and_every_shape_its_bounds():
    assert EXAMPLES.keys() == set(VERIFIERS)
    assert BOUNDS.keys() == SHAPES.keys()


@pytest.mark.parametrize("name", VERIFIERS)
async def test_gold_is_worth_the_maximum(name):
    result = await judged(name, EXAMPLES[name].gold)
    assert (result["error"], result["guard"], result["repeat"]) == ("none", "none", 0.0)
    assert {result[key] for key in ("score", "acc", "format", "pass_ratio", "feasible", "quality")} == {1.0}


@pytest.mark.parametrize("name", VERIFIERS)
async def test_wrong_answers_are_worth_less(name):
    for wrong in EXAMPLES[name].wrong:
        result = await judged(name, wrong)
        assert result["acc"] == 0.0
        assert result["score"] < 1.0
        assert result["error"] in ("wrong_answer", "infeasible")


@pytest.mark.parametrize("name", VERIFIERS)
@pytest.mark.slow
async def test_the_same_answer_gets_the_same_verdict(name):
    for answer in (EXAMPLES[name].gold, *EXAMPLES[name].wrong, "[A, B", ""):
        assert await judged(name, answer) == await judged(name, answer)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERIFIERS)
async def test_garbage_never_raises_and_is_worth_nothing(name):
    for garbage in GARBAGE:
        result = await judged(name, garbage)
        assert (result["score"], result["acc"]) == (0.0, 0.0), garbage[:60]


@pytest.mark.parametrize("name", VERIFIERS)
async def test_a_repeated_prompt_is_worth_no_more_than_the_form_of_the_answer_that_it_shows(name):
    # The prompt of Countdown's source shows an expression in tags.
    worth = JudgeSettings().countdown_format if name == "countdown" else 0.0
    for response in (EXAMPLES[name].prompt, EXAMPLES[name].prompt * 50):
        result = await judged(name, response)
        assert (result["score"], result["acc"]) == (worth, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", GRAPHS)
async def test_a_shape_bounds_the_score_of_every_graph_task(name, shape):
    highest, lowest = BOUNDS[shape]
    assert (await judged(name, EXAMPLES[name].gold, shape=shape))["score"] == highest
    for wrong in EXAMPLES[name].wrong:
        assert lowest <= (await judged(name, wrong, shape=shape))["score"] < highest
    for garbage in [*GARBAGE, EXAMPLES[name].prompt]:
        assert (await judged(name, garbage, shape=shape))["score"] <= lowest, garbage[:60]


@pytest.mark.parametrize("name", VERIFIERS)
async def test_a_row_that_cannot_be_read_masks_its_answers(name, monkeypatch):
    monkeypatch.setattr(rewards, "_logged_failures", set())
    for row in ("", "{", "{}", '"text"', "[1]"):
        result = await compute_score(name, EXAMPLES[name].gold, row)
        assert result.keys() == KEYS
        assert math.isnan(number_of(result, "score"))
        assert result["error"] == "infrastructure"


@pytest.mark.parametrize("name", ["code", "refactor", "stdio", "calls", "sql"])
async def test_a_sandbox_that_is_down_masks_its_answers(name, monkeypatch):
    monkeypatch.setattr(rewards, "_logged_failures", set())

    async def fail(*arguments, **options):
        raise InfrastructureError("down")

    monkeypatch.setattr("rewards.sandbox.Sandbox.check", fail)
    monkeypatch.setattr("rewards.sandbox.Sandbox.run", fail)
    result = await compute_score(name, EXAMPLES[name].gold, EXAMPLES[name].row)
    assert math.isnan(number_of(result, "score"))
    assert result["error"] == "infrastructure"
