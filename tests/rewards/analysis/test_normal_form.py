"""The normal form: code without effect leaves the program equal, and any code with an effect makes it different."""

import random

import pytest

from data_prep.sources import refactor
from rewards.analysis.imports import hides_code
from rewards.analysis.normal_form import normal_form, same_program

ORIGINAL = """def f(values):
    step_1 = []
    index = 0
    while index < len(values):
        item = values[index]
        if (item > 3) == True:
            step_1.append(item)
        else:
            pass
        index = index + 1
    result = 0
    copy = list(step_1)
    for item in copy:
        result = result + item
    answer = result
    return answer"""
HEAD, BODY = ORIGINAL.split("\n", 1)


def indented(source: str) -> str:
    return "\n".join(f"    {line}" for line in source.split("\n"))


def begun(*lines: str) -> str:
    """The original with these lines at the start of its function."""
    return "\n".join([HEAD, *(f"    {line}" for line in lines), BODY])


def changed(*pairs: tuple[str, str]) -> str:
    source = ORIGINAL
    for old, new in pairs:
        assert old in source
        source = source.replace(old, new)
    return source


IDLE = {
    "comment": f"# a comment\n{ORIGINAL}  # and one more",
    "constant": f"{ORIGINAL}\n0",
    "pass": f"{ORIGINAL}\npass",
    "docstring": begun('"""Adds."""'),
    "pure expression": begun("len(values) + 1"),
    "assert": begun("assert isinstance(values, list)"),
    "annotations": changed(("f(values)", "f(values: list) -> int"), ("result = 0", "result: int = 0")),
    "parentheses": changed(("(item > 3)", "((item > 3))")),
    "locals renamed": changed(("step_1", "kept"), ("item", "value_"), ("index", "place")),
    "parameter renamed": changed(("values", "numbers")),
    "unused assignment": begun("x = 5"),
    "unused pair": begun("a, b = 1, 2"),
    "unused chain": begun("x = 5", "y = x", "x += 1", "y = [x, y]"),
    "unused walrus": begun("(w := 3)"),
    "unused list": begun("junk = []", "junk.append(3)", "junk[0] = 4"),
    "unused global": f"{ORIGINAL}\nX = 3\nY = X",
    "unused import": f"import os, sys as system\nfrom math import pi\n{ORIGINAL}",
    "unused function": f"def g(a):\n    return a + 1\n{ORIGINAL}",
    "unused functions of each other": f"def g(a):\n    return h(a)\ndef h(a):\n    return g(a)\n{ORIGINAL}",
    "unused inner function": begun("def inner(a):", "    return a"),
    "unused class": f"class A:\n    x = 1\n{ORIGINAL}",
    "self-assignment": changed(("result = 0", "result = 0\n    result = result")),
    "dead store": changed(("        item = values", "        item = 0\n        item = values")),
    "deleted name": changed(("answer = result", "answer = result\n    del result")),
    "if True": f"if True:\n{indented(ORIGINAL)}",
    "if False": f"if False:\n    f = 1\n{ORIGINAL}",
    "if 1 == 1, else": changed(("    result = 0", "    if 1 == 1:\n        result = 0\n    else:\n        result = 9")),
    "no else": changed(("        else:\n            pass\n", "")),
    "turned if": changed(
        (
            "if (item > 3) == True:\n            step_1.append(item)\n        else:\n            pass",
            "if not (item > 3) == True:\n            pass\n        else:\n            step_1.append(item)",
        )
    ),
    "unreachable": f"{ORIGINAL}\n    print(3)",
    "return None after": f"{ORIGINAL}\n    return None",
    "idle for": begun("for q in range(3):", "    z = q", "    if z:", "        break"),
    "idle while": begun("n = 0", "while n < 3:", "    n += 1"),
    "while True, break": f"while True:\n{indented(ORIGINAL)}\n    break",
    "for once": f"for _ in range(1):\n{indented(ORIGINAL)}",
    "try, finally pass": f"try:\n{indented(ORIGINAL)}\nfinally:\n    pass",
    "try, raise again": f"try:\n{indented(ORIGINAL)}\nexcept Exception as error:\n    raise error",
    "nullcontext": f"import contextlib\nwith contextlib.nullcontext():\n{indented(ORIGINAL)}",
    "plus zero": changed(("result + item", "result + item + 0")),
    "times one": changed(("result + item", "result + 1 * item")),
    "conditional of a constant": changed(("return answer", "return answer if True else None")),
    "and of a constant": changed(("while index", "while True and index")),
    "lambda called at once": changed(("return answer", "return (lambda: answer)()")),
    "main block": f"{ORIGINAL}\nif __name__ == '__main__':\n    pass",
    "alias": changed(("def f", "def g")) + "\nf = g",
    "handed on": changed(("def f", "def g")) + "\ndef f(values):\n    return g(values)",
    "handed on by a lambda": changed(("def f", "def g")) + "\nf = lambda *a: g(*a)",
    "long chain": begun("c0 = 1", *(f"c{i} = c{i - 1} if 1 else 2" for i in range(1, 60)), "if c59:", "    c60 = 2"),
}
OTHER = {
    "comprehension": "def f(values):\n    return sum([item for item in values if item > 3])",
    "no comparison with True": changed(("(item > 3) == True", "item > 3")),
    "no copy": changed(("list(step_1)", "step_1")),
    "no last name": changed(("    answer = result\n    return answer", "    return result")),
    "another operator": changed(("> 3", ">= 3")),
    "another constant": changed(("> 3", "> 4")),
    "another start": changed(("result = 0", "result = 1")),
    "another item": changed(("append(item)", "append(index)")),
    "another function": changed(("def f", "def g")),
    "nothing": "x = 0",
    "an effect": begun("print(values)"),
    "a change of the argument": begun("values.sort()"),
    "a decorator": f"import functools\n@functools.cache\n{ORIGINAL}",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", IDLE)
def test_code_that_does_nothing_makes_no_other_program(kind):
    assert same_program(IDLE[kind], ORIGINAL, ["f"])
    assert same_program(ORIGINAL, IDLE[kind], ["f"])


@pytest.mark.parametrize("kind", OTHER)
def test_code_that_does_something_makes_another_program(kind):
    assert not same_program(OTHER[kind], ORIGINAL, ["f"])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("def f(x):\n    return 1", "def f(x):\n    return True"),
        ("def f(x):\n    return 0.0", "def f(x):\n    return -0.0"),
        ("def f(x):\n    return (1, 2)", "def f(x):\n    return (1, 2.0)"),
        ("def f(x, y):\n    return x - y", "def f(y, x):\n    return x - y"),
        ("def f(x, y=1):\n    return x", "def f(x, y=2):\n    return x"),
        ("def f(x):\n    global a\n    a = x\na = 1", "def f(x):\n    a = x\na = 1"),
        (f"def f():\n    return 0x{'f' * 4000}", f"def f():\n    return 0x{'f' * 3999}e"),
    ],
)
def test_values_and_arguments_are_told_apart(left, right):
    assert not same_program(left, right, ["f", "a"])
    assert same_program(left, left, ["f", "a"])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("def f(v):\n    k = 1\n    return [x + k for x in v]", "def f(a):\n    b = 1\n    return [c + b for c in a]"),
        (
            "def f(v):\n    def g(x):\n        return x\n    return g(v)",
            "def f(g):\n    def v(g):\n        return g\n    return v(g)",
        ),
        (
            "def g(v):\n    return v\ndef f(v):\n    return g(v) + 1",
            "def a(x):\n    return x\ndef f(y):\n    return a(y) + 1",
        ),
        ("import math\ndef f(v):\n    return math.pi", "import math as m\ndef f(w):\n    return m.pi"),
        (
            "def f(v):\n    match v:\n        case [a, *b]: return a, b",
            "def f(b):\n    match b:\n        case [c, *a]: return c, a",
        ),
        (
            "def f():\n    try: g()\n    except ValueError as e: return e",
            "def f():\n    try: g()\n    except ValueError as x: return x",
        ),
        ("f = lambda a, b: (a, b)", "f = lambda b, a: (b, a)"),
    ],
)
def test_names_that_a_program_chooses_do_not_count_in_any_scope(left, right):
    assert same_program(left, right, ["f"])


@pytest.mark.parametrize("source", ["def f(:", "return 1", "x = 1\n" * 4000, f"x = {'-' * 5000}1", "\ud800", "\0"])
def test_what_has_no_normal_form_is_distinguished_from_nothing(source):
    assert normal_form(source, []) is None
    assert same_program(source, ORIGINAL, ["f"])


@pytest.mark.slow
def test_every_solution_of_a_refactoring_task_is_another_program():
    for seed in range(40):
        fields = refactor.draw(random.Random(seed))
        assert not same_program(fields["solution"], fields["ground_truth"]["original"], ["f"])
        assert not hides_code(fields["solution"])


@pytest.mark.parametrize(
    "source",
    [
        "exec('x = 1')",
        "eval('1')",
        "run = exec",
        "import builtins\nbuiltins.exec('x')",
        "from builtins import exec as run",
        "getattr(__import__('builtins'), 'ex' + 'ec')('x')",
        "__builtins__['exec']('x')",
        "__builtins__.exec('x')",
        "globals()['f'] = 1",
        "vars()['f'] = 1",
        "locals().update(f=1)",
        "f.__globals__['x']",
        "().__class__.__base__.__subclasses__()",
        "f.__code__ = g",
        "x.__dict__['f']",
        "x.__getattribute__('f')",
        "type(f)(compile('1', '', 'eval'), {})",
        "import types\ntypes.FunctionType",
        "from types import CodeType",
        "import importlib",
        "import runpy",
        "import code",
        "import codeop",
        "import pickle",
        "import marshal",
        "import os",
        "import sys\nsys.modules['builtins']",
        "import subprocess",
        "import timeit\ntimeit.timeit('x')",
        "import pydoc",
        "import sqlite3",
        "import ctypes",
        "import pandas as pd\npd.eval('1')",
        "import dataclasses\ndataclasses.builtins",
        "import numpy as np\nnp.lib.sys",
        "import collections\ncollections._sys",
        "from random import _os",
        "from enum import sys",
        "from . import other",
        "import operator\noperator.attrgetter('x')",
        "from operator import methodcaller as m",
        "import typing\ntyping.get_type_hints(f)",
        "open('m.py', 'w').write('x')",
        "match x:\n    case object(__class__=c): c",
        "breakpoint()",
        "setattr(x, 'y', 1)",
    ],
)
def test_every_way_to_run_text_hides_code(source):
    assert hides_code(source)


@pytest.mark.parametrize(
    "source",
    [
        "def f(values):\n    return [x for x in values if x > 3]",
        "import math\nfrom collections import Counter, defaultdict\nimport functools as ft\nft.reduce(max, Counter(x))",
        "class A:\n    def __init__(self):\n        super().__init__()\n        self._x = 1",
        "if __name__ == '__main__':\n    print('exec')",
        "import re\nre.compile('x')\nre.sub('exec', 'eval', 'x')",
        "from datetime import datetime\ndatetime.now()",
        "import numpy as np\nnp.linalg.norm(x)",
        "x.select = token.code",
    ],
)
def test_honest_programs_hide_nothing(source):
    assert not hides_code(source)
