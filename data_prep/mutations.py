"""Programs that differ in one place from a right one: the bugs of repair tasks."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.FloorDiv,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A program with one change; `kind` names what was changed."""

    source: str
    kind: str


def mutants(source: str) -> list[Mutant]:
    """Every program that one change makes of a program, no two alike. Raises SyntaxError for what is no Python."""
    tree = ast.parse(source)
    found: dict[str, Mutant] = {}
    for node in ast.walk(tree):
        for kind, attribute, value in _changes(node):
            kept = getattr(node, attribute)
            setattr(node, attribute, value)
            text = ast.unparse(tree)
            setattr(node, attribute, kept)
            found.setdefault(text, Mutant(text, kind))
    found.pop(ast.unparse(tree), None)
    return list(found.values())


def _changes(node: ast.AST) -> Iterator[tuple[str, str, object]]:
    """The changes of one node: kind, attribute, new value."""
    if isinstance(node, ast.Compare):
        for place, comparison in enumerate(node.ops):
            if type(comparison) in _COMPARISONS:
                other = _COMPARISONS[type(comparison)]()
                yield "comparison", "ops", [*node.ops[:place], other, *node.ops[place + 1 :]]
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        yield "operator", "op", _OPERATORS[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        yield "connective", "op", ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "constant", "value", node.value + 1
        yield "constant", "value", node.value - 1
    elif isinstance(node, ast.If | ast.While):
        yield "condition", "test", ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Name) and node.id in _NAMES:
        yield "builtin", "id", _NAMES[node.id]
