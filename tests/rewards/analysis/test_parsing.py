"""The nodes of a tree, and trees as text."""

import ast
from pathlib import Path

import pytest

import rewards
from rewards.analysis.parsing import nodes_of, written

LEAVES = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
ROOM = Path(rewards.__file__).parent
MODULES = sorted(path.relative_to(ROOM) for path in ROOM.glob("analysis/*.py"))


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_nodes_are_those_of_a_walk_but_for_contexts_and_operators(module: Path):
    tree = ast.parse((ROOM / module).read_text())
    assert nodes_of(tree) == [node for node in ast.walk(tree) if not isinstance(node, LEAVES)]


def test_nodes_of_patterns_handlers_and_arguments_are_among_them():
    tree = ast.parse("match f(*a, **b):\n    case {'k': [x, *_]} if x: pass\ntry: pass\nexcept E as e: del e[0:1]")
    assert nodes_of(tree) == [node for node in ast.walk(tree) if not isinstance(node, LEAVES)]


def test_a_statement_without_a_place_in_the_text_is_written():
    tree = ast.parse("def f(x):\n    x = 1  # gone\n    for y in x:\n        x += y\n")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body[1:] = [ast.Pass()]
    assert written(tree) == "def f(x):\n    x = 1\n    pass"
