"""Removal of code without effect: constants, `pass`, annotations, `if True:`, unreachable statements, `+ 0`.

unused_code.py removes unused assignments, imports and definitions. Statements are only removed, never added, so one
pass from the inside out finds them all.
"""

import ast
import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from rewards.analysis.node_kinds import ENDS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PURE = (
    *(ast.Constant, ast.Name, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare),
    *(ast.IfExp, ast.Lambda, ast.JoinedStr, ast.FormattedValue, ast.Starred, ast.Subscript, ast.Slice, ast.Attribute),
    *(
        ast.ListComp,
        ast.SetComp,
        ast.DictComp,
        ast.GeneratorExp,
        ast.comprehension,
        ast.arguments,
        ast.arg,
        ast.keyword,
    ),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context),
)
_PURE_CALLS = _words("""
    abs all any bool bytes dict divmod enumerate float frozenset int isinstance len list map max min object ord
    pow range repr reversed round set slice sorted str sum tuple type zip chr filter id callable hash complex
""")
_IDENTITIES = {ast.Add: 0, ast.Sub: 0, ast.Mult: 1, ast.Pow: 1, ast.BitOr: 0, ast.BitXor: 0, ast.LShift: 0}


def is_pure(node: ast.AST | None) -> bool:
    """Whether an expression has no side effects, if the names of builtins refer to the builtins."""
    return node is None or all(_is_pure_part(part) for part in ast.walk(node))


def _is_pure_part(part: ast.AST) -> bool:
    if isinstance(part, ast.Call):
        return isinstance(part.func, ast.Name) and part.func.id in _PURE_CALLS and hasattr(builtins, part.func.id)
    return isinstance(part, _PURE)


def truth_of(test: ast.expr) -> bool | None:
    """The truth value of a constant condition; None for any other condition."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.Tuple | ast.List) and not any(isinstance(one, ast.Starred) for one in test.elts):
        return bool(test.elts) if is_pure(test) else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        truth = truth_of(test.operand)
        return None if truth is None else not truth
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = test.left, test.comparators[0]
        if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
            return _compared(test.ops[0], left.value, right.value)
    return None


def _compared(operator: ast.cmpop, left: object, right: object) -> bool | None:
    if isinstance(operator, ast.Eq | ast.Is):
        return left == right
    if isinstance(operator, ast.NotEq | ast.IsNot):
        return left != right
    if not (isinstance(left, int | float) and isinstance(right, int | float)):
        return None
    if isinstance(operator, ast.Lt | ast.GtE):
        return (left < right) == isinstance(operator, ast.Lt)
    if isinstance(operator, ast.Gt | ast.LtE):
        return (left > right) == isinstance(operator, ast.Gt)
    return None


def is_identity(operator: ast.operator, right: ast.expr) -> bool:
    neutral = _IDENTITIES.get(type(operator))
    if neutral is None or not isinstance(right, ast.Constant):
        return False
    return type(right.value) is int and right.value == neutral


class Expressions(ast.NodeTransformer):
    """Removes the parts of expressions that do not change their value."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        truth = truth_of(node.test)
        return node if truth is None else node.body if truth else node.orelse

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if is_identity(node.op, node.right):
            return node.left
        commutes = isinstance(node.op, ast.Add | ast.Mult | ast.BitOr | ast.BitXor)
        return node.right if commutes and is_identity(node.op, node.left) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        idle = isinstance(node.op, ast.And)
        first = [part for part in node.values[:-1] if truth_of(part) is not idle]
        node.values = [*first, node.values[-1]]
        return node if first else node.values[0]

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        inner = node.operand
        cancels = isinstance(node.op, ast.USub | ast.Invert)
        if cancels and isinstance(inner, ast.UnaryOp) and type(inner.op) is type(node.op):
            return inner.operand
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Lambda) or node.args or node.keywords:
            return node
        has_parameters = len(list(ast.walk(node.func.args))) > 1
        return node if has_parameters else node.func.body


_Body = TypeVar("_Body", bound=ast.While | ast.For | ast.With | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def without_idle_code(tree: ast.Module) -> ast.Module:
    """The module without code that has no effect; changes the given tree."""
    tree = Expressions().visit(tree)
    tree.body = _block(tree.body)
    return tree


def _block(statements: Iterable[ast.stmt]) -> list[ast.stmt]:
    reached: list[ast.stmt] = []
    for statement in statements:
        for part in _reduced(statement):
            if not (reached and isinstance(reached[-1], ENDS)):
                reached.append(part)
    return reached


def _reduced(node: ast.stmt) -> Sequence[ast.stmt]:
    """The statements that replace this one, with the same effect."""
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
    # A last handler that re-raises has no effect; an earlier one keeps the exception from later handlers.
    while node.handlers and _re_raises(node.handlers[-1]):
        node.handlers.pop()
    if not node.body or not (node.handlers or node.finalbody):
        return [*node.body, *node.orelse, *node.finalbody]
    return [node]


def _re_raises(handler: ast.ExceptHandler) -> bool:
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
    # Annotations stay, since they define the fields of a dataclass.
    parts = [part if isinstance(part, ast.AnnAssign) else _reduced(part) for part in node.body]
    node.body = [one for part in parts for one in ([part] if isinstance(part, ast.stmt) else part)]
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
