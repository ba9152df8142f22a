"""Names bound to literals, replaced by those: `known = [1, 2]` and `a == known` read as `a == [1, 2]`. Pure.

A name counts if its scope binds it once, to a literal, to a name or an attribute of one, or as the variable of a loop
over one. Sums and texts of literals (`6 + 1`, `int("7")`, `"1 2".split()`) are computed.
"""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rewards.analysis.node_kinds import FUNCTIONS

Scope = dict[str, ast.expr | None]  # a name's only value, None if it has none or several
_MOST_NODES, _MOST_REPLACED = 512, 8192
_LONGEST = 4096
_COMPUTED: dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (int, float, str, bool, list, tuple, set, frozenset, sorted, abs, dict)
}
_SIMPLE = (int, float, str, bool, type(None), list, tuple, set, frozenset, dict)


def with_literals(program: ast.Module) -> ast.Module:
    """A copy in which names of literals are replaced; what is replaced is limited, so that the copy stays small."""
    return _Replaced().visit(copy.deepcopy(program))  # type: ignore[no-any-return]


def _bindings(scope: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a scope binds, inner ones excluded, each with its value; None if it has no single one."""
    waiting = list(ast.iter_child_nodes(scope))[::-1]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, None
            case ast.AugAssign(target=ast.Name(id=name)) | ast.alias(asname=str(name)) | ast.alias(name=name):
                yield name, None
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from ((name, None) for name in names)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _pairs(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from _pairs(target, value)
            case ast.NamedExpr(target=target, value=value):
                yield from _pairs(target, value)
            case ast.For(target=target, iter=iterated) | ast.comprehension(target=target, iter=iterated):
                yield from _loop_pairs(target, iterated)
            case ast.Name(id=name, ctx=ast.Del()):
                yield name, None
        if not isinstance(node, FUNCTIONS):
            waiting += list(ast.iter_child_nodes(node))[::-1]


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
        for number, part in enumerate(target.elts):
            if same:
                assert isinstance(value, ast.Tuple | ast.List)
                yield from _pairs(part, value.elts[number])
            else:
                yield from ((node.id, None) for node in ast.walk(part) if isinstance(node, ast.Name))


def _attributes(program: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """The attributes that a program sets, each as `.name` with its value."""
    for node in ast.walk(program):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield f".{node.attr}", None
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                yield f".{name}", value


def _loop_pairs(target: ast.expr, iterated: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
    """The variable of a loop stands for all items."""
    if isinstance(target, ast.Name):
        yield target.id, iterated
        return
    is_numbered = isinstance(iterated, ast.Call) and getattr(iterated.func, "id", "") == "enumerate"
    names = [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
    for number, name in enumerate(names):
        numbered = is_numbered and len(names) == 2 and number == 1
        yield name, iterated.args[0] if numbered and isinstance(iterated, ast.Call) and iterated.args else None


class _Replaced(ast.NodeTransformer):
    """Replaces names from the innermost scope outwards."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.replaced = 0

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit a node's parts, with its own names if it is a scope."""
        is_scope = isinstance(node, (ast.Module, *FUNCTIONS))
        if is_scope:
            found = [*_bindings(node), *(_attributes(node) if isinstance(node, ast.Module) else ())]
            # An attribute that is set with a value is listed twice.
            times = Counter(name for name, _ in found)
            scope: Scope = {name: None for name, _ in found}
            self.scopes.append(scope)
            for name, value in found:
                if times[name] == 1 + name.startswith(".") and value is not None:
                    scope[name] = self._literal(value)
        super().generic_visit(node)
        if is_scope:
            self.scopes.pop()
        return _computed(node) if isinstance(node, ast.expr) else node

    def _literal(self, value: ast.expr) -> ast.expr | None:
        """A value as a literal; None if it is none, or a long one."""
        literal = self.visit(copy.deepcopy(value))
        return literal if _size(literal) <= _MOST_NODES and _is_literal(literal) else None

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A name that is read."""
        return self._bound(node.id, node, self.scopes) if isinstance(node.ctx, ast.Load) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """An attribute of the program's own class or object; names in a class are those of the scope around it."""
        name = f".{node.attr}" if f".{node.attr}" in self.scopes[0] else node.attr
        bound = self._bound(name, node, self.scopes[:1]) if isinstance(node.ctx, ast.Load) else node
        return self.generic_visit(node) if bound is node else bound

    def _bound(self, name: str, node: ast.expr, scopes: Sequence[Scope]) -> ast.expr:
        value = next((scope[name] for scope in reversed(scopes) if name in scope), None)
        if value is None or self.replaced > _MOST_REPLACED:
            return node
        self.replaced += _size(value)
        return value


def _size(node: ast.AST) -> int:
    return sum(1 for _ in ast.walk(node))


def _is_literal(node: ast.expr) -> bool:
    """Whether an expression is built of literals only, calls such as `dict(zip(...))` of them included."""
    return not any(isinstance(part, ast.Name) and part.id not in _MAKERS for part in ast.walk(node)) and any(
        isinstance(part, ast.Constant) for part in ast.walk(node)
    )


_MAKERS = frozenset((*_COMPUTED, "zip", "map", "enumerate"))


def _computed(node: ast.expr) -> ast.expr:
    """The value of an operation on literals, as a literal."""
    try:
        match node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as operator, right=right):
                one, other = ast.literal_eval(left), ast.literal_eval(right)
                is_product = isinstance(operator, ast.Mult)
                if is_product and not all(isinstance(value, int | float) for value in (one, other)):
                    return node  # a text or list may be long
                value = one * other if is_product else one + other if isinstance(operator, ast.Add) else one - other
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _COMPUTED:
                value = _COMPUTED[name](ast.literal_eval(argument))
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split"), args=[]):
                value = list[Any](text.split())
            case ast.Subscript(value=base, slice=ast.Constant(value=index), ctx=ast.Load()):
                value = ast.literal_eval(base)[index]
            case _:
                return node
        text = repr(value)
        return ast.parse(text, mode="eval").body if isinstance(value, _SIMPLE) and len(text) <= _LONGEST else node
    except (ValueError, TypeError, KeyError, IndexError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        return node
