"""Wrong programs made from a right one: mutants (data_prep/sources/bugs.py), lost parts, and constant answers. Pure."""

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
    """The programs without one statement, or with the argument in place of `-x`, `not x` or a builtin's call."""
    tree = ast.parse(solution)
    for parent in list(ast.walk(tree)):
        for name, value in list(ast.iter_fields(parent)):
            children = value if isinstance(value, list) else [value]
            for place, child in enumerate(children):
                kind, other = _without_a_part(child)
                if other is None:
                    continue
                changed = [*children[:place], other, *children[place + 1 :]]
                setattr(parent, name, changed if isinstance(value, list) else other)
                source = written(tree)
                setattr(parent, name, value)
                if source is not None:
                    yield Mutant(source, kind)


def _without_a_part(node: object) -> tuple[str, ast.AST | None]:
    """The kind of loss and what takes the node's place; None if nothing can be lost."""
    if isinstance(node, ast.stmt):
        return "statement", ast.Pass() if _is_removable(node) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        # `-1` is a constant, which has its own mutants.
        return "sign", None if isinstance(node.operand, ast.Constant) else node.operand
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
        alone = len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred)
        return "call", node.args[0] if alone else None
    return "", None


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
