"""Expressions without what leaves their value as it is, and which expressions do nothing but have a value."""

import ast
import builtins


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
    """Whether computing an expression has no effect but its value; names of builtins mean the builtins."""
    return node is None or all(_is_pure_part(part) for part in ast.walk(node))


def _is_pure_part(part: ast.AST) -> bool:
    if isinstance(part, ast.Call):
        return isinstance(part.func, ast.Name) and part.func.id in _PURE_CALLS and hasattr(builtins, part.func.id)
    return isinstance(part, _PURE)


def truth_of(test: ast.expr) -> bool | None:
    """Whether a condition of constants holds; None for any other."""
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
    return (
        neutral is not None
        and isinstance(right, ast.Constant)
        and right.value is not True
        and (type(right.value) is int and right.value == neutral)
    )


class Expressions(ast.NodeTransformer):
    """Takes out of expressions what leaves their value as it is."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        truth = truth_of(node.test)
        return node if truth is None else node.body if truth else node.orelse

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if is_identity(node.op, node.right):
            return node.left
        turned = isinstance(node.op, ast.Add | ast.Mult | ast.BitOr | ast.BitXor) and is_identity(node.op, node.left)
        return node.right if turned else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        idle = isinstance(node.op, ast.And)
        first = [part for part in node.values[:-1] if truth_of(part) is not idle]
        node.values = [*first, node.values[-1]]
        return node if first else node.values[0]

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        inner = node.operand
        same = isinstance(inner, ast.UnaryOp) and type(inner.op) is type(node.op) and not isinstance(node.op, ast.Not)
        return inner.operand if same and isinstance(inner, ast.UnaryOp) and not isinstance(node.op, ast.UAdd) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Lambda) and not (node.args or node.keywords or list(ast.walk(node.func.args))[1:]):
            return node.func.body
        return node
