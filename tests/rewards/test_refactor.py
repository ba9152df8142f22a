"""Verifier `refactor`: another program with the same behaviour, in good form."""

import json

import pytest

from rewards import compute_score
from rewards.refactor import is_tidy

ORIGINAL = "def f(x):\n    y = x * x\n    return y"
TRUTH = json.dumps({"tests": ["assert f(2) == 4", "assert f(3) == 9", "assert f(4) == 16"], "original": ORIGINAL})


@pytest.mark.parametrize(
    ("program", "ratio", "error"),
    [
        ("def f(x):\n    return x * x", 1.0, "none"),
        ("def f(x): return x * x", 0.75, "wrong_answer"),
        ("def f(x):\n    return 4", 0.5, "wrong_answer"),
        (ORIGINAL + "  # the same", 0.0, "wrong_answer"),
        ("def f(x)\n    return x * x", 0.0, "syntax"),
        ("def f(x):\n    return x * x\n\n\nraise ValueError", 0.0, "runtime"),
    ],
)
async def test_tests_and_form_are_paid_for_where_it_compiles_runs_and_changed(program, ratio, error):
    result = await compute_score("refactor", f"```python\n{program}\n```", TRUTH)
    assert (result["pass_ratio"], result["error"]) == (ratio, error)


@pytest.mark.parametrize("source", ["if x:\n\ty", "x = 1 ", "x = 1; y = 2", "x = '" + "a" * 100 + "'"])
def test_what_is_not_tidy(source):
    assert not is_tidy(source)
    assert is_tidy("x = 1\ny = 2\n")
