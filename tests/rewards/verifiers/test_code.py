"""Verifier `code`: partial credit for separable parts; errors by kind; tricks that earn nothing."""

import pytest
from pydantic import ValidationError

from data_prep.micro.suite import problems
from rewards import compute_score
from rewards.verifiers.code import CodeTruth

pytestmark = pytest.mark.slow  # with the sandbox

PAIR = CodeTruth(
    tests=[
        "assert f(1, 2)[0] == 4",
        "assert f(1, 2)[1] == 4",
        "assert f(5, 6)[0] == 8",
        "assert f(5, 6)[1] == 12",
    ]
).model_dump_json()


async def judged(program, **settings):
    result = await compute_score("code", program, PAIR, **settings)
    return result["score"], result["error"]


@pytest.mark.parametrize(
    ("program", "share"),
    [
        ("def f(a,b):\n a+=3\n b*=2\n return a,b", 1.0),
        ("```python\ndef f(a, b):\n    return a + 3, b * 2\n```", 1.0),
        ("def f(a,b):\n a+=3\n return a,b", 0.5),
        ("def f(a,b):\n b*=2\n return a,b", 0.5),
        ("def f(a,b):\n return a,b", 0.0),
        ("def f(a,b):\n return 4,4", 0.5),
    ],
)
async def test_each_part_earns_its_share(program, share):
    assert (await judged(program))[0] == share


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("def f(a,b):\n return a,b", "wrong_answer"),
        ("def f(a,b):\n return 1//0", "runtime"),
        ("def g(a,b):\n return a,b", "runtime"),
        ("def f(a,b:\n return a", "syntax"),
        ("```bash\nls\n```", "extract"),
        ("while True: pass", "timeout"),
        ("import sys\nsys.exit(0)", "runtime"),
    ],
)
async def test_a_failure_is_named(program, error):
    assert await judged(program, timeout=0.5) == (0.0, error)


@pytest.mark.parametrize(
    "program",
    [
        "import os\nos._exit(0)",
        "class X:\n def __eq__(s,o): return True\n def __getitem__(s,i): return s\ndef f(a,b): return X()",
        "def f(a,b):\n print('ok')\n return 0,0",
        "import builtins\nbuiltins.AssertionError=Exception\ndef f(a,b): return 0,0",
    ],
)
async def test_tricks_earn_nothing(program):
    assert (await judged(program, timeout=2.0))[0] == 0.0


async def test_all_or_nothing_is_an_option():
    assert (await judged("def f(a,b):\n a+=3\n return a,b", partial_credit=False)) == (0.0, "wrong_answer")


@pytest.mark.parametrize(
    "problem", list(problems("repair", "val", seed=0, count=6, difficulty=1)), ids=lambda one: one.prompt
)
async def test_the_visible_example_alone_is_not_enough_to_repair(problem):
    call, value = problem.prompt.split("\n")[0].split("==")
    program = f"def f(*_):\n return [{value}] * 9" if "," in call else f"def f(_):\n return {value}"
    result = await compute_score("code", program, problem.truth().model_dump_json())
    assert result["error"] == "wrong_answer"
    assert result["acc"] == 0.0


@pytest.mark.parametrize("tests", [[], ["assert f("]])
def test_tests_must_be_python_and_at_least_one(tests):
    with pytest.raises((ValidationError, SyntaxError)):
        CodeTruth(tests=tests)
