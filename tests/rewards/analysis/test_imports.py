"""Imports: a module named by constants is found in every form; text that runs nothing imports nothing."""

import ast

import pytest

from rewards.analysis.imports import MAX_CHARACTERS, Constants, imported_modules


@pytest.mark.parametrize(
    "source",
    [
        "exec('import gc')",
        "__import__('g'+'c')",
        "__import__('cg'[::-1])",
        "__import__(''.join(['g','c']))",
        "__import__(chr(103)+chr(99))",
        "e = exec\ne('import gc')",
        "m = 'gc'\n__import__(m)",
        "import importlib as i\ni.import_module(f'{\"g\"}c')",
        "exec(compile('import gc','','exec'))",
        "eval(\"__import__('gc')\")",
        "exec(\"exec('import gc')\")",
        "getattr(__builtins__,'ex'+'ec')('import gc')",
        "__builtins__['exec']('import gc')",
        "__builtins__.__dict__['__import__']('gc')",
        "import builtins as b\nb.exec('import gc')",
        "from importlib import import_module as q\nq('gc')",
        "import sys\nsys.modules['gc']",
        "import sys\nsys.modules.get('gc')",
        "exec(b'import gc')",
        "exec(bytes.fromhex('696d706f7274206763').decode())",
        "exec('import {}'.format('gc'))",
        "exec('import %s' % 'gc')",
        "def f(run=exec): run('import gc')",
        "(lambda: __import__)()('gc')",
        "a, b = '__imp', 'gc'\ngetattr(__builtins__, a + 'ort__')(b)",
        "exec('IMPORT GC'.lower())",
        "__import__.__call__('gc')",
        "__import__(name='gc')",
        "from functools import partial\npartial(exec, 'import gc')()",
        "exec('import xgc'.replace('x',''))",
        "s = 'import '\nt = s + 'gc'\nexec(t)",
        "exec('''\nimport gc\n''')",
        "import importlib.util\nimportlib.util.find_spec('gc')",
        "exec(''.join(map(chr,[105,109,112,111,114,116,32,103,99])))",
        "exec(bytes([105,109,112,111,114,116,32,103,99]))",
        "globals()['__builtins__'].__import__('gc')",
        "(e := exec)('import gc')",
        "exec(str('import gc'))",
        "exec(''.join(reversed('cg tropmi')))",
        "import runpy\nrunpy.run_module('gc')",
    ],
)
def test_an_import_is_found_in_every_disguise_of_constants(source):
    assert "gc" in imported_modules(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    ["x = 'import gc'", "print('import gc')", "d.get('gc')", "f('gc')", "d['gc']", "exec('import')", "exec('x = 1')"],
)
def test_text_that_is_not_run_imports_nothing(source):
    assert "gc" not in imported_modules(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "a = a + 'x'\nexec(a)",
        "a = b\nb = a\na('import gc')",
        "exec('{:>9999999}'.format('x'))",
        "exec('%9999999s' % 'x')",
        "exec('a'.replace('', 'x' * 9))",
        "a0 = 'aaaaaaaa'\n" + "\n".join(f"a{i} = a{i - 1} + a{i - 1}" for i in range(1, 60)) + "\nexec(a59)",
        "exec(" * 80 + "'import'" + ")" * 80,
        "exec(chr(99999999999))",
        "exec('a'[7])",
        "exec(-1 ** 'x')",
    ],
)
def test_what_cannot_be_computed_in_bounds_is_left_alone(source):
    assert imported_modules(ast.parse(source)) == set()


def test_no_value_is_longer_than_the_bound():
    names = {f"a{i}": ast.parse(f"a{i - 1} + a{i - 1}" if i else "'abcdefgh'", mode="eval").body for i in range(30)}
    constants = Constants(names)
    values = [constants.fold(node) for node in names.values()]
    assert max(len(value) for value in values if isinstance(value, str)) == MAX_CHARACTERS // 2
    assert values[-1] is None
