"""Wrong programs made of a right one: mutants (data_prep/sources/bugs.py), lost parts and constant answers. Pure."""

import ast
import builtins
import random
from collections.abc import Iterator, Sequence

from data_prep.sources.bugs import Mutant, mutants
from rewards.analysis.parsing import written

_KEPT_STATEMENTS = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Pass,
)  # fmt: skip
_BUILTINS = frozenset(dir(builtins))


def wrong_programs(solution: str, constant: Sequence[str], *, most: int, seed: str) -> list[Mutant]:
    """Up to `most` distinct programs that differ from a solution in one place; constant answers are always among them.

    constant: programs that ignore their input. seed: decides which mutants are left out of more than `most`. Raises
    SyntaxError for invalid Python.
    """
    right = ast.unparse(ast.parse(solution))
    stubs = [Mutant(source, "constant answer") for source in dict.fromkeys(constant)][:most]
    found = {one.source: one for one in (*mutants(solution), *lost_parts(solution)) if one.source != right}
    others = list(found.values())
    if len(others) > most - len(stubs):
        places = random.Random(seed).sample(range(len(others)), most - len(stubs))
        others = [others[place] for place in sorted(places)]
    return [*others, *stubs]


def lost_parts(solution: str) -> Iterator[Mutant]:
    """The programs without one statement, condition, operand, keyword, bound, sign or call around an argument."""
    tree = ast.parse(solution)
    for parent in list(ast.walk(tree)):
        for name, value in list(ast.iter_fields(parent)):
            children = value if isinstance(value, list) else [value]
            for place, child in enumerate(children):
                for kind, parts in _losses(parent, name, child):
                    changed = [*children[:place], *parts, *children[place + 1 :]]
                    setattr(parent, name, changed if isinstance(value, list) else next(iter(parts), None))
                    source = written(tree)
                    if source is not None:
                        yield Mutant(source, kind)
            setattr(parent, name, value)


def _losses(parent: ast.AST, field: str, child: object) -> Iterator[tuple[str, Sequence[ast.AST]]]:
    """The kinds of loss at a child of a node, each with what takes the child's place: a node or nothing."""
    match child:
        case ast.stmt():
            if _is_removable(child) and not (isinstance(child, ast.Return) and _is_last(parent, child)):
                yield "statement", [ast.Pass()]
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "sign", [operand]  # `-1` is a constant, which has its own mutants
        case ast.BinOp(left=left, right=right):
            yield from (("operand", [side]) for side in (left, right))
        case ast.BoolOp(values=values):
            yield from (("operand", [one]) for one in values)
        case ast.IfExp(body=body, orelse=other):
            yield from (("condition", [one]) for one in (body, other))
        case ast.Call(func=ast.Name(id=name), args=[ast.expr() as only], keywords=[]) if name in _BUILTINS:
            if not isinstance(only, ast.Starred):
                yield "call", [only]
        case ast.Call(func=ast.Attribute(value=ast.expr() as inner), args=[], keywords=[]):
            yield "call", [inner]
    if (isinstance(parent, ast.Call) and field == "keywords") or (
        isinstance(parent, ast.comprehension) and field == "ifs"
    ):
        yield ("keyword" if field == "keywords" else "condition"), []
    if isinstance(parent, ast.Slice) and child is not None:
        yield "bound", []


def _is_last(parent: ast.AST, statement: ast.stmt) -> bool:
    """Whether a function ends with the statement: without its last `return` it gives None, which every test rejects."""
    return isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef) and parent.body[-1] is statement


def _is_removable(node: ast.stmt) -> bool:
    """Whether a program without the statement may still run: one without the only value of a variable does not."""
    if isinstance(node, _KEPT_STATEMENTS) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return False
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        read = {part.id for part in ast.walk(node.value or node) if isinstance(part, ast.Name)}
        return names <= read or not all(isinstance(target, ast.Name | ast.Tuple) for target in targets)
    return True
