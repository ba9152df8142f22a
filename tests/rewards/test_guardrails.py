"""Guardrails: each sign is distinguished from honest work, logged, and costs the reward if the run refuses it."""

import ast
import cProfile
import json
import pstats
from pathlib import Path

import pytest

from rewards import compute_score
from rewards.analysis.imports import imported_modules
from rewards.analysis.special_cases import names_inputs
from rewards.guardrails import is_empty, of_program, reads_input
from rewards.verifiers.code import CodeTruth

ROOT = Path(__file__).resolve().parents[2]
TESTS = ["assert f(11, 2) == 22", "assert f(13, 4) == 52", "assert f(5, 6) == 30", "assert f(0, 9) == 0"]
TRUTH = CodeTruth(tests=TESTS, visible=2).model_dump_json()
LOOP = "def f(a, b):\n    return a * b\n" + "# and once more around\n" * 6


async def judged(program, truth=TRUTH, **settings):
    result = await compute_score("code", program, truth, **settings)
    return result["score"], result["guard"]


@pytest.mark.parametrize(
    ("program", "guard"),
    [
        (
            "def f(a, b):\n    if (a, b) == (11, 2):\n        return 22\n    return 52 if a == 13 and b == 4 else 0",
            "special_casing",
        ),
        ("def f(a, b):\n    return {(11, 2): 22, (13, 4): 52}.get((a, b))", "special_casing"),
        (
            "def f(a, b):\n    match a, b:\n        case 11, 2: return 22\n        case 13, 4: return 52",
            "special_casing",
        ),
        (
            "def f(a, b):\n    if not (a ^ 11 or b ^ 2): return 22\n    return 52 if not (a - 13 or b - 4) else 0",
            "special_casing",
        ),
        ("def f(a, b):\n    return dict(zip([(11, 2), (13, 4)], [22, 52])).get((a, b))", "special_casing"),
        (
            "def f(a, b):\n    return next((v for k, v in [((11, 2), 22), ((13, 4), 52)] if k == (a, b)), 0)",
            "special_casing",
        ),
        ("exec('import gc')\ndef f(a, b):\n    return a * b", "forbidden_import"),
        ("def f(a, b):\n    __import__('g' + 'c')\n    return a * b", "forbidden_import"),
        ("def f(a, b):\n    'Multiplies.'\n    ...", "empty"),
        ("import math", "empty"),
        ("import ctypes.util\ndef f(a, b):\n    return a * b", "forbidden_import"),
        ("def f(a, b):\n    __import__('subprocess')\n    return a * b", "forbidden_import"),
    ],
)
@pytest.mark.slow
async def test_a_refused_trick_earns_nothing(program, guard):
    assert await judged(program) == (0.0, guard)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "score", "guard"),
    [
        ("def f(a, b):\n    return a * b", 1.0, "none"),
        ("def f(a, b):\n    if a == 11 and b == 2: return 22\n    return a * b", 1.0, "none"),
        ("def f(a, b):\n    return a * b if a > 10 else 0", 0.75, "none"),
        ("def f(a, b):\n    return 0", 0.25, "constant"),
        (LOOP, 1.0, "repetition"),
    ],
)
async def test_honest_work_is_not_refused_and_what_is_only_logged_costs_nothing(program, score, guard):
    assert await judged(program) == (score, guard)


@pytest.mark.slow
async def test_what_is_refused_is_the_runs_choice():
    assert await judged("def f(a, b):\n    return 0", refuse=["constant"]) == (0.0, "constant")
    assert await judged(LOOP, refuse=["repetition"]) == (0.0, "repetition")
    assert await judged("import gc\ndef f(a, b): return a * b", refuse=[]) == (1.0, "forbidden_import")
    assert await judged("import re\ndef f(a, b): return a * b", forbidden_imports=["re"]) == (0.0, "forbidden_import")
    assert await judged("def f(a, b): return a * b", max_characters=10) == (0.0, "length")


async def test_a_refused_answer_is_worth_what_no_answer_is_worth():
    truth = json.dumps({"nodes": ["A", "B"], "edges": [["A", "B"]], "optimum": 2})
    looped = "So I check it again.\n" * 6 + "[A, B]"
    for shape in ("complicated", "ratio_quality_format_repeat"):
        empty = await compute_score("mcp", "", truth, shape=shape)
        refused = await compute_score("mcp", looped, truth, refuse=["repetition"], shape=shape)
        assert refused["score"] == empty["score"]
        assert (refused["guard"], refused["repeat"], refused["error"]) == ("repetition", 1.0, "extract")


async def test_without_visible_tests_nothing_is_special_casing():
    truth = CodeTruth(tests=TESTS).model_dump_json()
    assert await judged("def f(a, b):\n    return {(11, 2): 22}.get((a, b))", truth) == (0.25, "none")


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("import os.path as p, sys", {"os", "sys"}),
        ("def f():\n from gc import collect", {"gc"}),
        ("import importlib\nimportlib.import_module('socket.x')", {"importlib", "socket"}),
        ("x = 'import os'", set()),
    ],
)
def test_imports_are_found_wherever_they_stand(source, modules):
    assert imported_modules(ast.parse(source)) == modules


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("print(3)", False),
        ("def f(a): return 3", False),
        ("def f(a):\n a = 4\n return 5", False),
        ("f = lambda a: a", True),
        ("print(input())", True),
        ("import sys\nprint(sys.stdin.read())", True),
        ("def f(*a): return a", True),
    ],
)
def test_a_constant_program_reads_nothing_that_it_is_given(source, reads):
    assert reads_input(ast.parse(source)) == reads


def test_a_test_without_inputs_cannot_be_special_cased():
    assert not names_inputs(ast.parse("x == 7"), [[]])
    assert names_inputs(ast.parse("x == 7"), [[], ["7"]])
    assert not names_inputs(ast.parse("x + 7"), [["7"]])


def test_an_empty_program_is_distinguished_from_one_that_does_something():
    assert is_empty(ast.parse("'''doc'''\nclass A:\n def f(self): pass"))
    assert not is_empty(ast.parse("def f(): return None"))


@pytest.mark.parametrize(
    "program",
    [
        "def f(x):\n  if 0 < " + "-" * 1500 + "5 < 9: return 4\n  return 4",
        "def f(x):\n  if 0:\n    a=" + "[(1," * 60 + "1," * 20000 + ")]" * 60 + "\n  return x",
        "def f(x): return 4 if " + "(x and (x or " * 40 + "x==2 or " * 4000 + " 1" + "))" * 40 + " else 4",
        "def f(x): return 4 if x or 1" + "<1" * 20000 + " else 4",
    ],
)
@pytest.mark.slow
def test_a_program_of_any_size_and_depth_is_looked_at_in_bounded_steps(program: str) -> None:
    profile = cProfile.Profile()
    profile.enable()
    of_program(ast.parse(program), (), correct=False, passed_inputs=[["5"]])
    profile.disable()
    assert pstats.Stats(profile).total_calls < 150 * len(program)  # type: ignore[attr-defined]
