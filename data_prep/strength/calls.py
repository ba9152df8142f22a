"""Unit tests as calls: the arguments in a test, and tests of the same form with other arguments. Pure."""

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

_CALL = "the_call_"


@dataclass(frozen=True)
class CallForm:
    """What a test compares, without the call's arguments.

    imports: statements before the assertion. function: the called function. arguments: how many it gets. keywords:
        names of the last ones. compared: the compared expression, with `_CALL` for the call.
    """

    imports: str
    function: str
    arguments: int
    keywords: tuple[str, ...]
    compared: str

    def expression(self, arguments: Sequence[Any]) -> str:
        """The compared expression with these arguments."""
        positional = len(arguments) - len(self.keywords)
        parts = [repr(value) for value in arguments[:positional]]
        parts += [f"{name}={value!r}" for name, value in zip(self.keywords, arguments[positional:], strict=True)]
        return self.compared.replace(_CALL, f"{self.function}({', '.join(parts)})")


def read_test(test: str, entry_points: Collection[str]) -> tuple[CallForm, tuple[Any, ...]] | None:
    """A test's form and arguments; None unless it is one comparison of one call with literal arguments.

    Imports may come before, and another name for the function.
    """
    *before, last = ast.parse(test).body
    imports = [one for one in before if isinstance(one, ast.Import | ast.ImportFrom)]
    renamed = _other_names(before, entry_points)
    if not isinstance(last, ast.Assert) or len(imports) + len(renamed) < len(before):
        return None
    for node in ast.walk(last.test):
        if isinstance(node, ast.Name):
            node.id = renamed.get(node.id, node.id)
    calls = [node for node in ast.walk(last.test) if isinstance(node, ast.Name) and node.id in entry_points]
    compared = _compared(last.test, entry_points)
    call = None if compared is None or len(calls) != 1 else _call_in(compared, entry_points)
    if compared is None or call is None:
        return None
    try:
        values = [ast.literal_eval(node) for node in (*call.args, *(word.value for word in call.keywords))]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    assert isinstance(call.func, ast.Name)
    form = CallForm(
        imports="\n".join(ast.unparse(one) for one in imports),
        function=call.func.id,
        arguments=len(values),
        keywords=tuple(str(word.arg) for word in call.keywords),
        compared=ast.unparse(_Replaced(call).visit(compared)),
    )
    return form, tuple(values)


def _other_names(before: Sequence[ast.stmt], entry_points: Collection[str]) -> dict[str, str]:
    """The entry points behind names such as `candidate`, by statements such as `candidate = add`."""
    functions = {}
    for statement in before:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=function)) if function in entry_points:
                functions[name] = function
    return functions


def expected_literal(test: str) -> str | None:
    """The literal that a test compares a call with, as text; None for other tests."""
    last = ast.parse(test).body[-1]
    if isinstance(last, ast.Assert) and isinstance(last.test, ast.Compare) and len(last.test.ops) == 1:
        left, right = last.test.left, last.test.comparators[0]
        if isinstance(left, ast.Call) and isinstance(last.test.ops[0], ast.Eq | ast.Is) and _is_literal(right):
            return ast.unparse(right)
    return None


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _call_in(expression: ast.expr, names: Collection[str]) -> ast.Call | None:
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
            return node if plain and all(word.arg is not None for word in node.keywords) else None
    return None


def _compared(test: ast.expr, names: Collection[str]) -> ast.expr | None:
    """The expression whose value a test checks, as much of the function's result as it reads."""
    if isinstance(test, ast.Call) and ast.unparse(test.func) in ("math.isclose", "isclose") and test.args:
        return test.args[0]
    if isinstance(test, ast.Call) or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
        return ast.Call(ast.Name("bool", ast.Load()), [test], [])
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    if isinstance(test.ops[0], ast.Lt | ast.LtE):
        return _distance(test.left)
    if not isinstance(test.ops[0], ast.Eq | ast.Is):
        return None
    sides = [test.left, test.comparators[0]]
    side = next((one for one in sides if _call_in(one, names) is not None), None)
    while isinstance(side, ast.Subscript):
        side = side.value  # one item of a result stands for the whole
    return side


def _distance(node: ast.expr) -> ast.expr | None:
    """x of `abs(x - 1.5)`."""
    is_distance = isinstance(node, ast.Call) and ast.unparse(node.func) in ("abs", "math.fabs") and len(node.args) == 1
    if not is_distance:
        return None
    assert isinstance(node, ast.Call)
    inner = node.args[0]
    return inner.left if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Sub) else None


class _Replaced(ast.NodeTransformer):
    """Puts `_CALL` in the place of one call."""

    def __init__(self, call: ast.Call) -> None:
        self.call = call

    def visit(self, node: ast.AST) -> Any:
        return ast.Name(_CALL, ast.Load()) if node is self.call else self.generic_visit(node)


def assertion_of(form: CallForm, expression: str, output: str) -> str | None:
    """A test that the expression has this value (a literal as text); None for floats inside a container, whose last
    digits a right program may round otherwise.
    """
    value = ast.literal_eval(output)
    before = [form.imports] if form.imports else []
    if isinstance(value, float):
        before = [*before, "import math"]
        assertion = f"assert math.isclose({expression}, {output}, rel_tol=1e-06, abs_tol=1e-09)"
    elif _has_float(value):
        return None
    else:
        assertion = f"assert {expression} == {output}"
    return "\n".join([*before, assertion])


def _has_float(value: Any) -> bool:
    if isinstance(value, dict):
        return _has_float(list(value.items()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_float, value))
    return isinstance(value, float | complex) and not (isinstance(value, float) and value.is_integer())
