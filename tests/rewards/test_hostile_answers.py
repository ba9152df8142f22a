"""Every verifier judges every answer: no text of a model, however hostile, raises or counts as our failure."""

import ast
import json
import math

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rewards import compute_score, registry
from rewards.analysis.parsing import text_of, typed, words_of
from rewards.counterfactual.interventions import KINDS, intervene
from rewards.counterfactual.segments import segment
from tests.rewards.examples import EXAMPLES, thought
from tests.rewards.results import number_of

pytestmark = pytest.mark.slow

IN_SANDBOX = ("code", "refactor", "stdio", "calls", "sql")
PURE = [name for name in registry.names() if name not in IN_SANDBOX]
MOST = 65_536

HUGE = f"0x{'f' * 4_000}"
NUMBERS = [
    HUGE,
    f"-{HUGE}",
    "9" * 5_000,
    "1e999",
    "1e999999999",
    "0b" + "1" * 20_000,
    "1" * 4_300,
    f"{'9' * 4_000}.{'9' * 4_000}",
]
NASTY = [
    *NUMBERS,
    *(f"{left}{HUGE}{right}" for left, right in (("{", "}"), ("[", "]"), ("(", ",)"), ("{", ": 1}"), ("{1: ", "}"))),
    f"{{({HUGE}, 1), {HUGE}, True, 1.0}}",
    f"[[{HUGE}], {{{HUGE}: {{{HUGE}}}}}]",
    *("[" * n + "]" * n for n in (50, 90, 150, 1_000, 30_000)),
    *("{" * n + "1" + ": 1}" * n for n in (50, 150)),
    *("-" * n + "1" for n in (500, 2_000, 60_000)),
    *("not " * n + "x" for n in (500, 10_000)),
    "1+" * 2_000 + "1",
    *(one * MOST for one in ("#", "`", "1", "-", "[", " ", "\n", "\t", "<", "\\", "'", "1,", "é", "\U0001f642")),
    "####" + "1" * 60_000,
    "#### 1" + ",234" * 15_000 + "5",
    "\ud800",
    "'\ud800'",
    "```python\n'\udfff'\n```",
    "\0",
    "'\0'",
    "1\0",
    "nan",
    "1e999j - 1e999",
    "b'\xff'",
    "'\\N{BULLET}'",
    "...",
    "\u2028".join(["1", "2"]),
]
SHORT = [one for one in NASTY if len(one) < 5_000]
PROGRAMS = [
    f"def f(x):\n    return x if x != {one} else 0"
    for one in (HUGE, "'\ud800'", f"{{{HUGE}}}", "1e999", "[" * 90 + "]" * 90)
]
PROGRAMS += [
    f"def f(x):\n    return {one}" for one in (HUGE, f"{{{HUGE}: 1}}", "-" * 900 + "1", "not " * 900 + "x", "'\0'")
]
PROGRAMS += [f"exec({HUGE})", f"__import__('x' * {HUGE})", f"import {'x' * 60_000}", f"{{{HUGE}: 1}}.get(input())"]
PROGRAMS += [
    f"def f(x):\n    return 42 if {HUGE} <= x <= {HUGE} else 0",
    f"def f(x):\n    return x == -{HUGE} == -{HUGE}",
]
DEEP = [
    *(f"x = {'1+' * n}1\ny = 2" for n in (200, 800, 3_000)),
    *(f"x = {'-' * n}1\ny = 2" for n in (180, 900)),
    *(f"x{'.a' * n}\ny = 1" for n in (200, 5_000)),
    *("if a:\n    pass\n" + "elif b:\n    pass\n" * n for n in (300, 900)),
]
QUERIES = [
    "SELECT " + "1+" * 20_000 + "1",
    "SELECT '\ud800'",
    "SELECT '\0'",
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
]
QUERIES += [
    f"SELECT {HUGE}",
    f"SELECT {'9' * 5_000}",
    "SELECT 9e999, -9e999",
    "SELECT x'ff'",
    "SELECT CAST(x'ff' AS TEXT)",
]


async def judged(name, response, **changes):
    truth = EXAMPLES[name].truth | changes
    result = await compute_score(name, response, json.dumps(truth), timeout=2.0)
    assert result["error"] != "infrastructure", response[:80]
    assert math.isfinite(number_of(result, "score"))
    return result


@pytest.mark.parametrize("name", PURE)
async def test_a_pure_verifier_judges_every_nasty_answer(name):
    for answer in NASTY:
        for response in (
            answer,
            thought(answer),
            f"<answer>{answer}</answer>",
            f"#### {answer}",
            f"[{answer}, {answer}]",
        ):
            await judged(name, response)


PIECES = st.one_of(
    st.sampled_from(SHORT),
    st.sampled_from(
        ["[", "]", "(", ")", "{", "}", ",", "####", "<answer>", "</answer>", "<think>\n", "</think>", "```"]
    ),
    st.sampled_from(
        ["```python\n", "```sql\n", "\n", " ", "-", "$", "e9", "A", "B", "0", "1", "42", "\\boxed{", "'", ":"]
    ),
    st.text(st.characters(exclude_categories=()), max_size=12),
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PIECES, max_size=12).map("".join))
@example("{0x" + "f" * 4000 + "}")
async def test_a_pure_verifier_judges_any_mixture(response):
    for name in PURE:
        await judged(name, response)


@pytest.mark.slow  # with the sandbox
@pytest.mark.parametrize("name", IN_SANDBOX)
async def test_a_verifier_with_a_sandbox_judges_every_nasty_answer(name):
    for answer in [*SHORT, *(PROGRAMS if name != "sql" else QUERIES)]:
        await judged(name, answer)
        await judged(name, f"```{'sql' if name == 'sql' else 'python'}\n{answer}\n```")


@pytest.mark.slow  # with the sandbox
async def test_duckdb_answers_every_nasty_query():
    pytest.importorskip("duckdb")
    databases = [{"setup": "CREATE TABLE t(a INTEGER)", "expected": [[1]]}]
    for query in ("SELECT (9e99)::VARINT", "SELECT 1e38::HUGEINT", "SELECT 'nan'::DOUBLE, 'inf'::FLOAT", *QUERIES):
        assert (await judged("sql", query, engine="duckdb", databases=databases))["score"] == 0.0


@pytest.mark.parametrize("unit", ["statement", "line"])
def test_every_nasty_program_has_interventions_or_none(unit):
    given = 0
    for program in [*PROGRAMS, *DEEP]:
        solution = f"```python\n{program}\n```"
        steps = segment(solution, unit)
        for index in (0, len(steps) - 1):
            given += sum(intervene(solution, steps, index, kind, replacement="z = 1") is not None for kind in KINDS)
    assert given > 0


def test_a_literal_of_any_size_has_a_text():
    assert text_of(10**5000) == hex(10**5000)
    assert text_of(-(10**5000)) == hex(-(10**5000))
    assert [text_of(value) for value in ("a", 1.5, None, True, 7)] == ["a", "1.5", "None", "True", "7"]
    assert text_of((10**5000, 1)) == "a tuple"


def test_words_of_a_large_number_are_the_same_in_every_notation():
    assert words_of(ast.parse(f"f({HUGE})")) == words_of(ast.parse(f"f(0b{'1' * 16_000})")) == [HUGE]


def test_hashable_literals_are_equal_type_for_type():
    for left, right in (({1}, {True}), ({1}, {1.0}), ({(1, 2)}, {(1, 2.0)}), ({"1"}, {1}), ({10**5000}, {10**5001})):
        assert typed(left) != typed(right)
    for items in ({10**5000}, {(10**5000, None)}, {1, "1", 1.5}):
        assert typed(items) == typed(list(items))
