"""What an expression over constants is, as far as it is text: `'g' + 'c'`, `''.join(['g', 'c'])`, `chr(103) + chr(99)`.

Only what has no effect is computed, each expression once, and no more than MAX_CHARACTERS at a time and MAX_TOTAL in
all: what a program hides behind more than that is not found.
"""

import ast
from collections.abc import Mapping, Sequence
from typing import Union

MAX_CHARACTERS, MAX_TOTAL = 65_536, 4_000_000
_MAX_DEPTH = 40
_METHODS = frozenset(
    ("join", "lower", "upper", "strip", "lstrip", "rstrip", "replace", "decode", "encode", "title", "capitalize")
) | {"format", "removeprefix", "removesuffix", "swapcase", "casefold", "fromhex"}

Value = Union[str, bytes, int, list["Value"]]  # noqa: UP007 - it names itself


class NotConstant(Exception):
    """The expression is no constant text, number, or list of these."""


class Constants:
    """The constant expressions of one program.

    names: the names that the program assigns once, with what it assigns.
    """

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names
        self.left = MAX_TOTAL
        self.known: dict[int, Value | None] = {}

    def fold(self, node: ast.AST, depth: int = _MAX_DEPTH) -> Value | None:
        """The value of an expression; None where it is not constant."""
        if id(node) not in self.known:
            self.known[id(node)] = None  # what contains itself has no value
            self.known[id(node)] = self._value(node, depth)
        return self.known[id(node)]

    def _value(self, node: ast.AST, depth: int) -> Value | None:
        if depth == 0:
            return None
        try:
            value = self._folded(node, depth - 1)
        except (NotConstant, ValueError, TypeError, LookupError, OverflowError, AttributeError, MemoryError):
            return None
        if isinstance(value, int):
            return value if value.bit_length() <= 64 else None
        if not isinstance(value, str | bytes | list):
            return None
        if isinstance(node, ast.Constant):
            return value
        self.left -= _size([value])
        return value if self.left > 0 and _size([value]) <= MAX_CHARACTERS else None

    def _need(self, nodes: Sequence[ast.AST], depth: int) -> list[Value]:
        values = [self.fold(node, depth) for node in nodes]
        known = [value for value in values if value is not None]
        if len(known) < len(values) or _size(known) > MAX_CHARACTERS:
            raise NotConstant
        return known

    def _folded(self, node: ast.AST, depth: int) -> object:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.fold(self.names[node.id], depth)
        if isinstance(node, ast.List | ast.Tuple):
            return self._need(node.elts, depth)
        if isinstance(node, ast.JoinedStr):
            return "".join(map(str, self._need(node.values, depth)))
        if isinstance(node, ast.FormattedValue) and node.format_spec is None:
            return str(self._need([node.value], depth)[0])
        if isinstance(node, ast.BinOp):
            return self._joined(node, depth)
        if isinstance(node, ast.Subscript):
            return self._item(node, depth)
        return self._called(node, depth) if isinstance(node, ast.Call) else None

    def _joined(self, node: ast.BinOp, depth: int) -> object:
        if not isinstance(node.op, ast.Add):
            left, right = self._need([node.left, node.right], depth)
            return _computed(node.op, left, right)
        # Long sums lean to the left: a loop instead of a call for each of their signs.
        parts, first = [node.right], node.left
        while isinstance(first, ast.BinOp) and isinstance(first.op, ast.Add):
            parts.append(first.right)
            first = first.left
        values = self._need([first, *reversed(parts)], depth)
        if isinstance(values[0], bytes):
            return b"".join(value for value in values if isinstance(value, bytes))
        if isinstance(values[0], int):
            return sum(value for value in values if isinstance(value, int))
        return "".join(value for value in values if isinstance(value, str))

    def _item(self, node: ast.Subscript, depth: int) -> object:
        (value,) = self._need([node.value], depth)
        if isinstance(value, int):
            return None
        if isinstance(node.slice, ast.Slice):
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            return value[slice(*(None if end is None else ast.literal_eval(end) for end in ends))]
        return value[ast.literal_eval(node.slice)]

    def _called(self, node: ast.Call, depth: int) -> object:
        if node.keywords:
            return None
        if isinstance(node.func, ast.Name):
            if node.func.id == "map" and getattr(node.args[0], "id", None) == "chr":
                (codes,) = self._need(node.args[1:], depth)
                return (
                    [chr(code) for code in codes if isinstance(code, int)] if isinstance(codes, list | bytes) else None
                )
            return _by_builtin(node.func.id, self._need(node.args, depth))
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in _METHODS:
            return None
        owner: object = bytes if getattr(node.func.value, "id", None) == "bytes" else None
        if owner is None:
            (owner,) = self._need([node.func.value], depth)
        given = self._need(node.args, depth)
        # A template may ask for any width, a replacement grow with each place that it is made in.
        grows = isinstance(owner, str | bytes) and len(owner) * _size(given) > MAX_CHARACTERS * 8
        if grows or (node.func.attr == "format" and any(map(str.isdigit, str(owner)))):
            return None
        return getattr(owner, node.func.attr)(*given)


def _size(values: Sequence[Value]) -> int:
    return sum(
        8 if isinstance(value, int) else 8 + (_size(value) if isinstance(value, list) else len(value))
        for value in values
    )


def _computed(operator: ast.operator, left: Value, right: Value) -> object:
    if isinstance(left, int) and isinstance(right, int):
        if isinstance(operator, ast.Sub | ast.BitXor):
            return left - right if isinstance(operator, ast.Sub) else left ^ right
        return left * right if isinstance(operator, ast.Mult) else None
    if isinstance(operator, ast.Mod) and isinstance(left, str) and not any(one.isdigit() or one == "*" for one in left):
        return left % (tuple(right) if isinstance(right, list) else right)
    return None


def _by_builtin(name: str, values: Sequence[Value]) -> object:
    (value,) = values
    if isinstance(value, int):
        return chr(value) if name == "chr" else str(value) if name == "str" else None
    if name == "bytes" and isinstance(value, list):
        return bytes(one for one in value if isinstance(one, int))
    if name == "reversed":
        return [value[place : place + 1] if isinstance(value, str) else value[place] for place in range(len(value))][
            ::-1
        ]
    if name in ("list", "tuple"):
        return list(value)
    return value if name == "str" and isinstance(value, str) else None
