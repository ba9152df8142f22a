"""Which modules a program imports, by statement, by a call, or in text that it runs.

Text over constants is computed (rewards/constant_text.py) and read as a program itself. What a program makes of its
input, of a file or in a loop is not: this is a sign that is logged and refused; the sandbox is what keeps a program in.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

from rewards.constant_text import Constants

_IMPORTERS = frozenset(
    ("__import__", "import_module", "find_spec", "find_loader", "get_loader", "run_module", "locate", "load_module")
) | {"find_module", "resolve_name", "reload"}
_RUNNERS = frozenset(("exec", "eval", "compile", "timeit", "runctx", "runsource", "push", "literal_eval"))
_KNOWN = _IMPORTERS | _RUNNERS | {"get"}
_MAX_DEPTH = 8


def imported_modules(program: ast.Module, depth: int = _MAX_DEPTH) -> set[str]:
    """The top-level names of the modules that a program imports."""
    reading = _Reading(program, depth)
    found = {name for node in ast.walk(program) for name in reading.imported_by(node)}
    return {name.lstrip(".").partition(".")[0] for name in found}


class _Reading:
    """One program, with the names that it gives to functions and texts."""

    def __init__(self, program: ast.Module, depth: int) -> None:
        self.names = _assigned_once(program)
        self.constants = Constants(self.names)
        self.depth = depth

    def imported_by(self, node: ast.AST) -> Iterator[str]:
        """The modules that this node imports, with all that their names hold."""
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Call):
            yield from self._by_call(node)
        elif isinstance(node, ast.Subscript) and self.meaning(node.value) == "modules":
            yield from self._texts([node.slice])

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
        """The name under which others know a function: `exec` for run, where `run = exec` stands."""
        if depth == 0:
            return ""
        if isinstance(function, ast.Name):
            given = self.names.get(function.id)
            return (self.meaning(given, depth - 1) if given else "") or function.id
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


def _assigned_once(program: ast.Module) -> dict[str, ast.expr]:
    """The names that a program binds in one place only, by `=`, import or a default, with what they mean there."""
    times: Counter[str] = Counter()
    found: dict[str, ast.expr] = {}
    for node in ast.walk(program):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            times[node.id] += 1
        elif isinstance(node, ast.arg):
            times[node.arg] += 1
        found.update(_meanings(node))
    return {name: value for name, value in found.items() if times[name] <= 1}


def _meanings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _paired(target, node.value)
    elif isinstance(node, ast.NamedExpr | ast.AnnAssign) and node.value:
        yield from _paired(node.target, node.value)
    elif isinstance(node, ast.ImportFrom | ast.Import):
        yield from ((alias.asname, ast.Name(alias.name)) for alias in node.names if alias.asname)
    elif isinstance(node, ast.arguments):
        yield from zip([one.arg for one in node.args[::-1]], node.defaults[::-1], strict=False)


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for one, given in zip(target.elts, value.elts, strict=False):
            yield from _paired(one, given)
