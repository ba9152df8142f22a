"""Syntax trees of programs, the positions of their statements in the text, and their literals as text and as values.

Literals may have any size: Python refuses to print whole numbers of more than 4,300 digits, and an answer may contain
such numbers in hexadecimal.
"""

import ast
from collections.abc import Iterable, Iterator


def parse(code: str) -> ast.Module | None:
    """The syntax tree of a program; None if it cannot be parsed."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def error_line(code: str) -> int | None:
    """The line, from 1, at which Python finds that the program cannot be parsed; None if it can, or names no line."""
    try:
        ast.parse(code)
    except SyntaxError as error:
        return error.lineno
    except (ValueError, RecursionError, MemoryError):
        pass
    return None


def written(tree: ast.AST) -> str | None:
    """The text of a parsed tree, which may have lost statements; None for a number with more digits than Python prints,
    or too deep nesting.
    """
    try:
        return ast.unparse(tree)
    except (ValueError, RecursionError):
        return None


_LEAVES = frozenset(("ctx", "op", "ops"))
"""Fields with contexts and operators."""
_with_parts: dict[type[ast.AST], list[str]] = {}
"""The other fields of each kind of node, as they come."""


def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """The nodes of `ast.walk`, in its order, except contexts and operators, in little more than half its time."""
    found = [tree]
    for node in found:
        kind = type(node)
        if kind not in _with_parts:
            _with_parts[kind] = [name for name in kind._fields if name not in _LEAVES]
        for name in _with_parts[kind]:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                found.append(value)
            elif isinstance(value, list):
                found += [item for item in value if isinstance(item, ast.AST)]
    return found


def is_bare_constant(node: ast.AST) -> bool:
    """Whether this statement is a constant alone, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement below this node in text order, a compound statement before its body."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.stmt):
            yield child
            yield from statements(child)
        elif isinstance(child, ast.excepthandler | ast.match_case):
            yield from statements(child)


class LineOffsets:
    """Converts positions of the syntax tree (line, byte in the line) to character offsets in the program."""

    def __init__(self, code: str):
        self.lines = code.encode().splitlines(keepends=True) or [b""]
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line.decode()))

    def character(self, line: int, byte: int) -> int:
        """The character offset of a byte in a line; lines count from 1."""
        return self.starts[line - 1] + len(self.lines[line - 1][:byte].decode())

    def span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        """Characters [start, end) of a whole statement, decorators included, or of an expression."""
        first = min([node, *getattr(node, "decorator_list", [])], key=lambda part: part.lineno)
        byte = first.col_offset - (1 if first is not node else 0)  # includes the "@" of a decorator
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.character(first.lineno, byte), self.character(node.end_lineno, node.end_col_offset)

    def header(self, node: ast.stmt) -> tuple[int, int]:
        """The span of a simple statement, or of a compound one up to its first inner statement."""
        start, end = self.span(node)
        inner = next(statements(node), None)
        if inner is None:
            return start, end
        text = "".join(line.decode() for line in self.lines)
        return stripped(text, start, self.span(inner)[0])


def stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without white space at its ends."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - (len(part) - len(part.rstrip()))


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
