"""Takes out of a program what does nothing where it stands: constants, `pass`, annotations, `if True:`, dead ends.

What is assigned, imported or defined and never used goes in rewards/unused_code.py. Statements only get fewer, and
one pass from the inside out finds them all.
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from rewards.idle_expressions import Expressions, is_identity, is_pure, truth_of

_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_Body = TypeVar("_Body", bound=ast.While | ast.For | ast.With | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def without_idle_code(tree: ast.Module) -> ast.Module:
    """The module with what does nothing taken out; the tree given is used up."""
    tree = Expressions().visit(tree)
    tree.body = _block(tree.body)
    return tree


def _block(statements: Iterable[ast.stmt]) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    for statement in statements:
        for part in _reduced(statement):
            if not (kept and isinstance(kept[-1], _ENDS)):
                kept.append(part)
    return kept


def _reduced(node: ast.stmt) -> Sequence[ast.stmt]:
    """The statements that do what this one does."""
    if isinstance(node, ast.Pass | ast.Assert | ast.Global | ast.Nonlocal):
        return [node] if isinstance(node, ast.Global | ast.Nonlocal) else []
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.NamedExpr):
            return [ast.copy_location(ast.Assign([node.value.target], node.value.value), node)]
        return [] if is_pure(node.value) else [node]
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return _assigned(node)
    if isinstance(node, ast.Delete):
        return [] if all(isinstance(target, ast.Name) for target in node.targets) else [node]
    reduce = _REDUCERS.get(type(node))
    return [node] if reduce is None else reduce(node)


def _assigned(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Sequence[ast.stmt]:
    if isinstance(node, ast.AugAssign):
        return [] if is_identity(node.op, node.value) else [node]
    if node.value is None:
        return []
    targets: list[ast.expr] = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
    if all(isinstance(target, ast.Name) and ast.dump(target) == _stored(node.value) for target in targets):
        return []
    return [ast.copy_location(ast.Assign(targets, node.value), node)]


def _stored(value: ast.expr) -> str:
    return ast.dump(ast.Name(value.id, ast.Store())) if isinstance(value, ast.Name) else ""


def _if(node: ast.If) -> Sequence[ast.stmt]:
    if (truth := truth_of(node.test)) is not None:
        return _block(node.body if truth else node.orelse)
    node.body, node.orelse = _block(node.body), _block(node.orelse)
    if not node.body and node.orelse:
        node.test, node.body, node.orelse = _negated(node.test), node.orelse, []
    if not node.body:
        return [] if is_pure(node.test) else [ast.copy_location(ast.Expr(node.test), node)]
    return [node]


def _while(node: ast.While) -> Sequence[ast.stmt]:
    truth = truth_of(node.test)
    node.body, node.orelse = _block(node.body), _block(node.orelse)
    if truth is False:
        return node.orelse
    if truth and node.body and isinstance(node.body[-1], ast.Break) and not _jumps(node.body[:-1]):
        return node.body[:-1]
    return [_filled(node)]


def _for(node: ast.For) -> Sequence[ast.stmt]:
    node.body, node.orelse = _block(node.body), _block(node.orelse)
    only = _only_item(node.iter)
    if only is not None and not _jumps(node.body):
        return [ast.copy_location(ast.Assign([node.target], only), node), *node.body, *node.orelse]
    return [] if not node.body and not node.orelse and is_pure(node.iter) else [_filled(node)]


def _only_item(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Tuple | ast.List | ast.Set) and len(node.elts) == 1:
        return None if isinstance(node.elts[0], ast.Starred) else node.elts[0]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        values = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        if len(values) == len(node.args) and values in ([1], [0, 1]):
            return ast.copy_location(ast.Constant(0), node)
    return None


def _with(node: ast.With) -> Sequence[ast.stmt]:
    node.body = _block(node.body)
    idle = [item for item in node.items if _is_idle_context(item.context_expr) and item.optional_vars is None]
    node.items = [item for item in node.items if item not in idle]
    return [_filled(node)] if node.items else node.body


def _is_idle_context(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not all(is_pure(part) for part in node.args):
        return False
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return called == "nullcontext" or (called == "suppress" and not node.args)


def _try(node: ast.Try) -> Sequence[ast.stmt]:
    node.body, node.orelse, node.finalbody = _block(node.body), _block(node.orelse), _block(node.finalbody)
    for handler in node.handlers:
        handler.body = _block(handler.body) or [ast.Pass()]
    # A handler that raises what it caught is none, unless a later one is thereby shut out.
    while node.handlers and _raises_again(node.handlers[-1]):
        node.handlers.pop()
    if not node.body or not (node.handlers or node.finalbody):
        return [*node.body, *node.orelse, *node.finalbody]
    return [node]


def _raises_again(handler: ast.ExceptHandler) -> bool:
    (first, *others) = handler.body
    if others or not isinstance(first, ast.Raise) or first.cause is not None:
        return False
    return first.exc is None or (isinstance(first.exc, ast.Name) and first.exc.id == handler.name)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Sequence[ast.stmt]:
    node.returns = None
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    node.body = _block(node.body)
    if node.body and isinstance(node.body[-1], ast.Return) and _is_none(node.body[-1].value):
        node.body.pop()
    return [_filled(node)]


def _is_none(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _class(node: ast.ClassDef) -> Sequence[ast.stmt]:
    # Annotations make the fields of a dataclass, so they stay.
    kept = [part if isinstance(part, ast.AnnAssign) else _reduced(part) for part in node.body]
    node.body = [one for part in kept for one in ([part] if isinstance(part, ast.stmt) else part)]
    return [_filled(node)]


def _match(node: ast.Match) -> Sequence[ast.stmt]:
    for case in node.cases:
        case.body = _block(case.body) or [ast.Pass()]
    return [node]


_REDUCERS: dict[type[ast.stmt], Callable[..., Sequence[ast.stmt]]] = {
    **{ast.If: _if, ast.While: _while, ast.For: _for, ast.With: _with, ast.Try: _try, ast.Match: _match},
    **{ast.FunctionDef: _function, ast.AsyncFunctionDef: _function, ast.ClassDef: _class},
}


def _filled(node: _Body) -> _Body:
    node.body = node.body or [ast.copy_location(ast.Pass(), node)]
    return node


def _jumps(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Break | ast.Continue) for part in body for node in ast.walk(part))


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
