"""Verifier `refactor`: a different program with the same behaviour and good style."""

import json

import pytest
from pydantic import ValidationError

from rewards import compute_score
from rewards.analysis.normal_form import only_adds
from rewards.verifiers.refactor import RefactorTruth, is_tidy, statements
from tests.rewards.results import number_of

ORIGINAL = "def f(x):\n    y = x * x\n    return y"
TRUTH = json.dumps({"tests": ["assert f(2) == 4", "assert f(3) == 9", "assert f(4) == 16"], "original": ORIGINAL})


@pytest.mark.parametrize(
    ("program", "ratio", "error"),
    [
        ("def f(x):\n    return x * x", 1.0, "none"),
        ("def f(x): return x * x", 0.75, "wrong_answer"),
        ("def f(x):\n    return 4", 0.25, "wrong_answer"),
        ("x = 0", 0.0, "runtime"),
        ("pass", 0.0, "extract"),
        ("def f(x):\n    return None", 0.0, "wrong_answer"),
        ("def f(x):\n    while x > 2: pass\n    return 4", 0.25, "timeout"),
        ("def f(x): return 9 ", 0.25, "wrong_answer"),
        ("def f(a):\n    b = a * a\n    return b", 0.0, "wrong_answer"),
        (ORIGINAL + "\n0", 0.0, "wrong_answer"),
        (f"{ORIGINAL}\nx = {'-' * 9000}1", 0.0, "syntax"),
        (f"{ORIGINAL}\n{'#' * 20_000}", 0.0, "wrong_answer"),
        (ORIGINAL + "  # the same", 0.0, "wrong_answer"),
        ("def f(x)\n    return x * x", 0.0, "syntax"),
        ("def f(x):\n    return x * x\n\n\nraise ValueError", 0.0, "runtime"),
    ],
)
@pytest.mark.slow
async def test_tests_and_form_are_paid_for_where_it_compiles_runs_and_changed(program, ratio, error):
    result = await compute_score("refactor", f"```python\n{program}\n```", TRUTH, timeout=0.5)
    assert (result["pass_ratio"], result["error"]) == (ratio, error)
    assert number_of(result, "score") >= 0.0


@pytest.mark.parametrize(
    ("program", "ratio", "error"),
    [
        ("def f(x):\n    return x * x", 1.0, "none"),
        ('"""Squares."""\n\n\ndef f(x):\n    """The square."""\n    return x * x', 1.0, "none"),
        ("def f(x):\n    y = x\n    return x * y", 0.8, "wrong_answer"),
        ("def f(x): y = x; return x * y", 0.6, "wrong_answer"),
        ("exec('def f(x):\\n    y = x * x\\n    return y')", 0.8, "wrong_answer"),
        ("import builtins\nbuiltins.exec('def f(x): return x * x', globals())", 0.8, "wrong_answer"),
    ],
)
async def test_too_many_statements_cost_a_share_where_a_limit_is_set(program, ratio, error):
    limited = json.dumps(json.loads(TRUTH) | {"max_statements": 2})
    result = await compute_score("refactor", f"```python\n{program}\n```", limited)
    assert result["pass_ratio"] == pytest.approx(ratio)
    assert result["error"] == error


async def test_a_failing_visible_test_is_no_special_casing():
    shown = json.dumps(json.loads(TRUTH) | {"visible": 1})
    program = "def f(x):\n    return 4 if x == {} else 0"
    for number, guard in ((2, "special_casing"), (5, "none")):
        result = await compute_score("refactor", program.format(number), shown, refuse=())
        assert (result["guard"], result["acc"]) == (guard, 0.0)


@pytest.mark.parametrize("original", ["def f(x)", "x = 1\n" * 3_000])
def test_an_original_that_nothing_can_be_distinguished_from_is_refused(original):
    with pytest.raises((ValidationError, SyntaxError)):
        RefactorTruth(tests=["assert f(1)"], original=original)


def test_statements_are_counted_inside_each_other_and_without_docstrings():
    assert statements('"""Text."""\nimport a\ndef f():\n    """Text."""\n    if a: return 1; x = 2\n    return 3') == 6


@pytest.mark.parametrize("source", ["if x:\n\ty", "x = 1 ", "x = 1; y = 2", "x = '" + "a" * 100 + "'"])
def test_what_is_not_tidy(source):
    assert not is_tidy(source)
    assert is_tidy("x = 1\ny = 2\n")


_GIVEN = "def f(xs):\n    out = []\n    for x in xs:\n        out.append(x * 2)\n    return out\n"


@pytest.mark.parametrize(
    ("program", "adds"),
    [
        (_GIVEN, True),
        (_GIVEN + "print()\n", True),
        (_GIVEN + "f(())\n", True),
        (_GIVEN.replace("    out = []\n", "    out = []\n    len(xs)\n"), True),
        (_GIVEN.replace("out", "result").replace("xs", "items"), True),
        ("import math\n" + _GIVEN + "X = math.pi\n", True),
        ("def f(xs):\n    return [x * 2 for x in xs]\n", False),
        ("def f(xs):\n    return list(map(lambda x: x * 2, xs))\n", False),
        ("def f(xs):\n    out = [x * 2 for x in xs]\n    return out\n", False),
        ("x = 0\n", False),
        ("def f(:", False),
        # Neither has statements that could be written down.
        (f"x = 0x{'f' * 4_000}\n{_GIVEN}", True),
        ("x = " + "-" * 900 + f"1\n{_GIVEN}", True),
    ],
)
def test_the_original_with_something_added_is_no_refactoring(program: str, adds: bool) -> None:
    assert only_adds(program, _GIVEN, ["f"]) is adds
