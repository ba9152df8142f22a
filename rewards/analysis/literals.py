"""Literals in a model's answer as text and as values, of any size. Python refuses to print whole numbers of more than
4,300 digits, and an answer may contain such numbers in hexadecimal.
"""

import ast
from collections.abc import Iterable


def text_of(value: object) -> str:
    """`str(value)`, but with whole numbers too long for `str` in hexadecimal."""
    try:
        return str(value)
    except ValueError:
        return hex(value) if isinstance(value, int) else f"a {type(value).__name__}"


def words_of(node: ast.AST) -> list[str]:
    """The words in all constants under a node: `f("a b", [3])` has a, b and 3."""
    constants = (inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant))
    return [word for constant in constants for word in text_of(constant).split()]


def typed(items: Iterable[object]) -> set[object]:
    """Hashable literals tagged with their types, so that 1, 1.0 and True differ."""
    return {_typed(item) for item in items}


def _typed(item: object) -> object:
    inner = tuple(map(_typed, item)) if isinstance(item, tuple) else item
    return type(item).__name__, inner
