"""Modules that a program imports: by statement, by call, or in text that it executes.

Constant text is computed (`'g' + 'c'`, `''.join(['g', 'c'])`, `chr(103) + chr(99)`) and parsed as a program. Only
expressions without side effects are computed, each once, up to MAX_CHARACTERS at a time and MAX_TOTAL in all. Text from
input, files or loops is not computed: this guard only discourages a habit, while the sandbox contains the program.
`hides_code` checks whether a program could execute text at all, used or not.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Union

from rewards.analysis.parsing import nodes_of

MAX_CHARACTERS, MAX_TOTAL = 65_536, 4_000_000
_MAX_TEXT_DEPTH = 40
_METHODS = frozenset(
    ("join", "lower", "upper", "strip", "lstrip", "rstrip", "replace", "decode", "encode", "title", "capitalize")
) | {"format", "removeprefix", "removesuffix", "swapcase", "casefold", "fromhex"}

ConstantValue = Union[str, bytes, int, list["ConstantValue"]]  # noqa: UP007 - recursive type


class NotConstant(Exception):
    """The expression is not a constant text, number, or list of these."""


class Constants:
    """The constant expressions of one program.

    names: the names that the program assigns exactly once, with the assigned expressions.
    """

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names
        self.left = MAX_TOTAL
        self.known: dict[int, ConstantValue | None] = {}

    def fold(self, node: ast.AST, depth: int = _MAX_TEXT_DEPTH) -> ConstantValue | None:
        """The value of an expression; None if it is not constant."""
        if id(node) not in self.known:
            self.known[id(node)] = None  # ends the recursion of an expression that contains itself
            self.known[id(node)] = self._value(node, depth)
        return self.known[id(node)]

    def _value(self, node: ast.AST, depth: int) -> ConstantValue | None:
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

    def _need(self, nodes: Sequence[ast.AST], depth: int) -> list[ConstantValue]:
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
        # A long sum is a deep left-leaning tree: a loop instead of one recursive call per `+`.
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
                if not isinstance(codes, list | bytes):
                    return None
                return [chr(code) for code in codes if isinstance(code, int)]
            return _by_builtin(node.func.id, self._need(node.args, depth))
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in _METHODS:
            return None
        owner: object = bytes if getattr(node.func.value, "id", None) == "bytes" else None
        if owner is None:
            (owner,) = self._need([node.func.value], depth)
        arguments = self._need(node.args, depth)
        # Bounds the result: a replacement grows with each match, and a format template may ask for any width.
        may_grow = isinstance(owner, str | bytes) and len(owner) * _size(arguments) > MAX_CHARACTERS * 8
        if may_grow or (node.func.attr == "format" and any(map(str.isdigit, str(owner)))):
            return None
        return getattr(owner, node.func.attr)(*arguments)


def _size(values: Sequence[ConstantValue]) -> int:
    return sum(8 + _content_size(value) for value in values)


def _content_size(value: ConstantValue) -> int:
    if isinstance(value, int):
        return 0
    return _size(value) if isinstance(value, list) else len(value)


def _computed(operator: ast.operator, left: ConstantValue, right: ConstantValue) -> object:
    if isinstance(left, int) and isinstance(right, int):
        if isinstance(operator, ast.Sub):
            return left - right
        if isinstance(operator, ast.BitXor):
            return left ^ right
        return left * right if isinstance(operator, ast.Mult) else None
    if isinstance(operator, ast.Mod) and isinstance(left, str) and not any(one.isdigit() or one == "*" for one in left):
        return left % (tuple(right) if isinstance(right, list) else right)
    return None


def _by_builtin(name: str, values: Sequence[ConstantValue]) -> object:
    (value,) = values
    if isinstance(value, int):
        return chr(value) if name == "chr" else str(value) if name == "str" else None
    if name == "bytes" and isinstance(value, list):
        return bytes(one for one in value if isinstance(one, int))
    if name == "reversed":
        return list(reversed(value))
    if name in ("list", "tuple"):
        return list(value)
    return value if name == "str" and isinstance(value, str) else None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Modules that execute no text and open no file. Code reached through other modules would escape the statement count.
_PLAIN_MODULES = _words("""
    __future__ abc array bisect cmath collections copy datetime decimal enum fractions functools heapq itertools
    json math numbers numpy operator random re statistics string time typing dataclasses contextlib textwrap
    unicodedata zlib hashlib
""")
_RUNS_TEXT = _words("""
    exec eval compile execfile breakpoint open input help get_type_hints ForwardRef evaluate_forward_ref
    run_path run_module runctx import_module reload
""")
_REACHES = _words("""
    getattr setattr delattr attrgetter methodcaller globals locals vars dir memoryview __import__ __builtins__
    builtins modules FunctionType CodeType LambdaType MethodType f_globals f_locals f_builtins f_back gi_frame
    tb_frame ag_frame cr_frame mro
""")
_HIDING = _RUNS_TEXT | _REACHES
_OTHER_MODULES = (sys.stdlib_module_names - _PLAIN_MODULES) | {"sys", "os"}
_DUNDERS = frozenset(("__init__", "__name__", "__doc__"))


def hides_code(source: str) -> bool:
    """Whether a program names anything that executes text or reaches other namespaces, or imports such a module."""
    tree = ast.parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
    return any(_hides(node, modules) for node in ast.walk(tree))


def _hides(node: ast.AST, modules: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _HIDING or _is_dunder(node.id)
    if isinstance(node, ast.Attribute):
        if node.attr == "compile" and getattr(node.value, "id", None) == "re":
            return False
        of_module = _root(node) in modules
        inner = node.attr in _OTHER_MODULES or node.attr.startswith("_")
        return node.attr in _HIDING or _is_dunder(node.attr) or (of_module and inner)
    if isinstance(node, ast.Import):
        return any(not _is_plain(alias.name) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        names = [alias.name for alias in node.names]
        inner = any(name in _HIDING | _OTHER_MODULES or (name.startswith("_") and name != "*") for name in names)
        return bool(node.level) or not _is_plain(node.module or "") or inner
    if isinstance(node, ast.MatchClass):
        return any(name in _HIDING or _is_dunder(name) for name in node.kwd_attrs)
    return False


def _root(node: ast.expr) -> str | None:
    """The name at the left end of `a.b.c`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return getattr(node, "id", None)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in _DUNDERS


def _is_plain(module: str) -> bool:
    return module.partition(".")[0] in _PLAIN_MODULES


_IMPORTERS = frozenset(
    ("__import__", "import_module", "find_spec", "find_loader", "get_loader", "run_module", "locate", "load_module")
) | {"find_module", "resolve_name", "reload"}
_RUNNERS = frozenset(("exec", "eval", "compile", "timeit", "runctx", "runsource", "push", "literal_eval"))
_KNOWN = _IMPORTERS | _RUNNERS | {"get"}
_MAX_DEPTH = 8


def imported_modules(program: ast.Module, depth: int = _MAX_DEPTH) -> set[str]:
    """The top-level names of the modules that a program imports."""
    nodes = nodes_of(program)
    reading = _Reading(nodes, depth)
    names = {name for node in nodes for name in reading.imported_by(node)}
    return {name.lstrip(".").partition(".")[0] for name in names}


class _Reading:
    """One program, with the names that it assigns to functions and texts."""

    def __init__(self, nodes: Sequence[ast.AST], depth: int) -> None:
        self.names = _assigned_once(nodes)
        self.constants = Constants(self.names)
        self.depth = depth

    def imported_by(self, node: ast.AST) -> Iterable[str]:
        """The dotted names of the modules that this node imports."""
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            return [node.module or ""]
        if isinstance(node, ast.Call):
            return self._by_call(node)
        if isinstance(node, ast.Subscript) and self.meaning(node.value) == "modules":
            return self._texts([node.slice])
        return ()

    def _by_call(self, call: ast.Call) -> Iterator[str]:
        called = self.meaning(call.func)
        if called not in _KNOWN and call.args:
            # partial(exec, text), map(__import__, names)
            called = self.meaning(call.args[0])
        texts = self._texts([*call.args, *(word.value for word in call.keywords)])
        of_modules = called == "get" and self.meaning(getattr(call.func, "value", call)) == "modules"
        if called in _IMPORTERS or of_modules:
            yield from texts
        elif called in _RUNNERS and self.depth > 0:
            for text in texts:
                yield from _of_text(text, self.depth - 1)

    def meaning(self, function: ast.AST, depth: int = 20) -> str:
        """The original name of a function: `exec` for `run` after `run = exec`."""
        if depth == 0:
            return ""
        if isinstance(function, ast.Name):
            assigned = self.names.get(function.id)
            return (self.meaning(assigned, depth - 1) if assigned else "") or function.id
        if isinstance(function, ast.Attribute):
            return self.meaning(function.value, depth - 1) if function.attr == "__call__" else function.attr
        if isinstance(function, ast.Subscript):
            return next(self._texts([function.slice]), "")
        if isinstance(function, ast.NamedExpr):
            return self.meaning(function.value, depth - 1)
        return self._of_call(function, depth - 1) if isinstance(function, ast.Call) else ""

    def _of_call(self, call: ast.Call, depth: int) -> str:
        if isinstance(call.func, ast.Lambda):
            return self.meaning(call.func.body, depth)
        if self.meaning(call.func, depth) in ("getattr", "get", "attrgetter"):
            return next(self._texts(call.args), "")
        return ""

    def _texts(self, nodes: Sequence[ast.AST]) -> Iterator[str]:
        for node in nodes:
            folded = self.constants.fold(node)
            for value in folded if isinstance(folded, list) else [folded]:
                if isinstance(value, str | bytes):
                    yield value if isinstance(value, str) else value.decode(errors="replace")


def _of_text(text: str, depth: int) -> set[str]:
    try:
        return imported_modules(ast.parse(text.strip()), depth)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()


def _assigned_once(nodes: Sequence[ast.AST]) -> dict[str, ast.expr]:
    """The names that a program binds only once, by `=`, import or a default, with the expressions bound to them."""
    times: Counter[str] = Counter()
    bindings: dict[str, ast.expr] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            times[node.id] += 1
        elif isinstance(node, ast.arg):
            times[node.arg] += 1
        bindings.update(_meanings(node))
    return {name: value for name, value in bindings.items() if times[name] <= 1}


def _meanings(node: ast.AST) -> Iterable[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        return [pair for target in node.targets for pair in _paired(target, node.value)]
    if isinstance(node, ast.NamedExpr | ast.AnnAssign) and node.value:
        return _paired(node.target, node.value)
    if isinstance(node, ast.ImportFrom | ast.Import):
        return [(alias.asname, ast.Name(alias.name)) for alias in node.names if alias.asname]
    if isinstance(node, ast.arguments):
        return zip([one.arg for one in node.args[::-1]], node.defaults[::-1], strict=False)
    return ()


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for element, given in zip(target.elts, value.elts, strict=False):
            yield from _paired(element, given)
