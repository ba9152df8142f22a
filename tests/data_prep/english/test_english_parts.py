"""Laws of the English suite's functions and stories."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.english.asking import quantities
from data_prep.english.domains import DOMAINS
from data_prep.english.functions import (
    TABLES,
    EnglishFunction,
    FunctionStep,
    distinguishing_cases,
    literal,
    random_argument,
    random_function,
)
from data_prep.english.stories import EnglishStory, Event, random_ledger, random_story
from rewards import compute_score
from rewards.counterfactual.replay import Plan, Sibling, estimate
from rewards.counterfactual.siblings import of_programs
from rewards.verifiers.code import CodeTruth

pytestmark = pytest.mark.slow

seeds = st.integers(0, 10**9)
levels = st.sampled_from((1, 2, 3))


@given(seed=seeds, level=levels)
@settings(max_examples=60, deadline=None)
def test_cases_expose_every_wrong_function(seed, level):
    rng = random.Random(seed)
    function = random_function(rng, level)
    cases = distinguishing_cases(rng, function)
    if cases is None:
        return
    assert len(cases.arguments) >= 5
    for wrong in cases.wrong:
        assert any(wrong.outcome(one) != function.outcome(one) for one in cases.arguments)
    keys = {wrong.key() for wrong in cases.wrong}
    for place in range(len(function.steps) - 1):
        forgotten = replace(function, steps=(*function.steps[:place], *function.steps[place + 1 :]))
        assert forgotten.key() in keys


@given(seed=seeds, level=levels)
@settings(max_examples=60, deadline=None)
def test_names_and_wording_do_not_change_the_key_of_a_function(seed, level):
    function = random_function(random.Random(seed), level)
    steps = tuple(replace(step, phrase=step.phrase + 1) for step in function.steps)
    assert replace(function, name="other", variable="z", steps=steps).key() == function.key()


@given(seed=seeds, level=levels)
@settings(max_examples=60, deadline=None)
def test_neighbours_differ_from_the_function(seed, level):
    function = random_function(random.Random(seed), level)
    assert all(other.key() != function.key() for part, other in function.neighbours() if part)


@given(seed=seeds, kind=st.sampled_from(list(TABLES)))
@settings(max_examples=60, deadline=None)
def test_an_argument_is_of_its_kind(seed, kind):
    argument = random_argument(random.Random(seed), kind)
    expected = {"number": int, "numbers": list, "text": str, "words": list}[kind]
    assert isinstance(argument, expected)
    assert EnglishFunction("f", "v", kind, (FunctionStep(kind, "return"),)).outcome(argument) == literal(argument)


@given(seed=seeds, level=levels)
@settings(max_examples=100, deadline=None)
def test_a_story_keeps_its_quantity_positive_and_its_answer_is_the_last_one(seed, level):
    story = random_story(random.Random(seed), level)
    if story is None:
        return
    values = story.values()
    assert min(values) > 0
    assert values[-1] == story.value()
    for event in story.events:
        for number in event.numbers:
            assert str(number) in story.text()
    assert "{" not in story.text() + story.program()


@given(seed=seeds, level=levels)
@settings(max_examples=60, deadline=None)
def test_other_people_and_words_do_not_change_the_key_of_a_story(seed, level):
    story = random_story(random.Random(seed), level)
    if story is None:
        return
    events = tuple(replace(event, phrase=event.phrase + 1) for event in story.events)
    other = replace(story, people=("Ada", "Alan"), events=events)
    assert (other.key(), other.value()) == (story.key(), story.value())
    assert all(neighbour.key() != story.key() for neighbour in story.neighbours())


async def test_every_operation_computes_what_its_code_says():
    rng = random.Random(0)
    sources, tests = [], []
    for kind, table in TABLES.items():
        for name, operation in table.items():
            constants = tuple(rng.choice(values) for values in operation.draws)
            step = FunctionStep(kind, name, ("a", "b") if name == "exchange" else constants)
            steps = (step,) if operation.code.startswith("return") else (step, FunctionStep(kind, "return"))
            function = EnglishFunction(f"{kind}_{name}", "v", kind, steps)
            sources.append(function.source())
            arguments = [random_argument(rng, kind) for _ in range(3)]
            tests += [f"assert {function.call(one)} == {function.outcome(one)}" for one in arguments]
    verdict = await compute_score("code", "\n".join(sources), CodeTruth(tests=tests).model_dump_json())
    assert (verdict["score"], verdict["error"]) == (1.0, "none")


def test_operations_on_known_values():
    examples = {"number": 7, "numbers": [4, 7, 12, 3, 10], "text": "a great road", "words": ["apple", "sea", "train"]}
    expected = {
        ("number", "remainder", (4,)): 3,
        ("number", "branch", (5, 2, 9)): 5,
        ("number", "branch_below", (5, 2, 9)): 16,
        ("numbers", "multiples", (4,)): [4, 12],
        ("numbers", "last", (2,)): [3, 10],
        ("numbers", "descend", ()): [12, 10, 7, 4, 3],
        ("text", "replace", ("a", "x")): "x grext roxd",
        ("text", "count", ("a",)): 3,
        ("words", "without", ("a",)): [],
        ("words", "join", ()): "apple sea train",
    }
    for (kind, name, constants), value in expected.items():
        assert FunctionStep(kind, name, constants).apply(examples[kind]) == value


def test_a_story_is_told_and_computed_as_written():
    domain = next(one for one in DOMAINS if one.variable == "apples")
    events = (Event("start", (12,)), Event("loss", (5,)), Event("many_gain", (3, 4)), Event("friend", (2,)))
    story = EnglishStory(domain, ("Maya", "Tom"), events)
    assert story.text() == (
        "Maya has 12 apples. Maya gives 5 of them to Tom. Maya buys 3 bags with 4 apples in each. Tom has 2 times as "
        "many apples as Maya. How many apples do they have together?"
    )
    assert story.program() == (
        "def solution():\n    apples = 12\n    apples = apples - 5\n    bought = 3 * 4\n    apples = apples + bought\n"
        "    tom = apples * 2\n    together = apples + tom\n    return together"
    )
    assert (story.value(), story.values()) == (57, [12, 7, 19, 57])


def test_a_function_is_written_traced_and_keyed_as_expected():
    steps = (
        FunctionStep("numbers", "above", (4,)),
        FunctionStep("numbers", "multiply", (3,)),
        FunctionStep("numbers", "sum"),
    )
    function = EnglishFunction("total_scores", "scores", "numbers", steps)
    assert function.source("Doc.") == (
        'def total_scores(scores):\n    """Doc."""\n    scores = [n for n in scores if n > 4]\n'
        "    scores = [n * 3 for n in scores]\n    return sum(scores)"
    )
    assert function.states([2, 5, 8]) == [[5, 8], [15, 24], 39]
    assert function.call([2, 5, 8]) == "total_scores([2, 5, 8])"
    empty = replace(function, steps=(steps[0], FunctionStep("numbers", "largest")))
    assert empty.outcome([1]) == "ValueError"


STORY = EnglishStory(DOMAINS[0], ("Ada", "Alan"), (Event("start", (9,)), Event("gain", (4,)), Event("double")))


@pytest.mark.parametrize(
    ("right", "written", "earned"),
    [
        ("", "", [1, 1, 2 / 3, 1 / 3, 1]),  # without `def` or `return` nothing is left
        ("+ 4", "+ 5", [1 / 3, 1 / 3, 0, 0, 1 / 3]),
        ("* 2", "// 2", [2 / 3, 2 / 3, 1 / 3, 0, 2 / 3]),
        ("* 2)", "* 2)\n    {0}.append({0}[-1] + 1)", [2 / 3, 2 / 3, 1 / 3, 0, -1 / 3, 2 / 3]),
    ],
)
async def test_a_statement_of_a_ledger_earns_the_tests_from_its_own_to_the_first_that_fails(right, written, earned):
    assert right in STORY.ledger()
    program = STORY.ledger().replace(right, written.format(STORY.domain.variable)) if right else STORY.ledger()
    truth = quantities(STORY)

    async def verify(changed: str) -> float:
        return float((await compute_score("code", changed, truth.model_dump_json()))["pass_ratio"])

    found = await estimate(program, verify, Plan(budget=12), score=await verify(program))
    assert found.values == pytest.approx(earned)


def keys_of_appends(program: str, group: list[str]) -> dict[str, str]:
    """What each statement appends, and its key beside these siblings."""
    own, _ = of_programs(program, [Sibling(text, 0.0) for text in group], "statement", False)
    pieces = zip(own.pieces, own.keys, strict=True)
    return {piece.split("[-1] ")[1].strip(")\n"): key for piece, key in pieces if ".append" in piece}


def test_beside_its_siblings_an_append_more_or_less_leaves_other_statements_their_keys():
    right = replace(STORY, events=(*STORY.events, Event("loss", (3,)))).ledger()
    fewer = "\n".join(line for line in right.split("\n") if "- 3" not in line)
    more = right.replace("* 2)", f"* 2)\n    {STORY.domain.variable}.append({STORY.domain.variable}[-1] + 7)")
    group = [right, fewer, more]
    beside = [keys_of_appends(program, group) for program in group]
    for code in ("+ 4", "* 2"):
        assert len({keys[code] for keys in beside}) == 1
    assert beside[0]["- 3"] == beside[2]["- 3"] != beside[2]["+ 7"] not in beside[0].values()
    # Alone, keys are numbers from the last.
    assert len({keys_of_appends(program, [])["* 2"] for program in group}) == 3


@given(seed=seeds, level=levels)
@settings(max_examples=60, deadline=None)
def test_a_ledger_has_a_statement_for_each_quantity(seed, level):
    story = random_ledger(random.Random(seed), level)
    if story is None:
        return
    scope: dict[str, object] = {}
    exec(story.ledger(), scope)  # noqa: S102
    assert scope["solution"]() == story.values()  # type: ignore[operator]
    assert len(story.ledger().splitlines()) == len(story.values()) + 2
    assert "?" not in story.sentences()
