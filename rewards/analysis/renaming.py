"""Renaming of the names that a program chooses to numbers, scope by scope, so that programs compare equal up to names.

Builtins, attributes, keywords of calls, names defined in a class and the names that the caller keeps are unchanged.
"""

import ast
from collections.abc import Collection, Iterator, Sequence

from rewards.analysis.node_kinds import COMPREHENSIONS, FUNCTIONS, NAMED


def rename(tree: ast.Module, kept: Collection[str]) -> set[str]:
    """Rename in place, numbering names in order of appearance; returns the new names that the module itself binds."""
    renaming = Renaming()
    names = {name: name for name in bound_by(tree) if name in kept}
    renaming.scopes.append(names | {name: renaming.fresh() for name in bound_by(tree) if name not in kept})
    for statement in tree.body:
        renaming.visit(statement)
    return set(renaming.scopes[0].values())


def bound_by(scope: ast.AST) -> list[str]:
    """The names that a module, function or comprehension binds in its own scope, in order of appearance."""
    names: dict[str, None] = {}
    outside: set[str] = set()
    for node in _own_nodes(scope):
        if isinstance(node, ast.Global | ast.Nonlocal):
            outside.update(node.names)
        for name in _bound_at(node):
            names.setdefault(name)
    return [name for name in names if name not in outside]


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope in order: nested scopes appear as single nodes, without their contents."""
    waiting = list(reversed(_parts(scope)))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, COMPREHENSIONS):
            # A walrus in a comprehension binds in the enclosing scope.
            yield from (inner.target for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
        elif not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _parts(scope: ast.AST) -> list[ast.AST]:
    if isinstance(scope, COMPREHENSIONS):
        return [generator.target for generator in scope.generators]
    if isinstance(scope, ast.Lambda):
        return [scope.args, scope.body]
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        return [scope.args, *scope.body]
    return list(ast.iter_child_nodes(scope))


def _bound_at(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, NAMED) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    elif isinstance(node, ast.Import | ast.ImportFrom):
        # `import a.b` binds a, and `as` would bind a.b instead: it cannot be renamed.
        yield from (alias.asname or alias.name for alias in node.names if alias.asname or "." not in alias.name)


class Renaming(ast.NodeVisitor):
    """Renames in place, scope by scope; `scopes` are the new names of the scopes around the visited node."""

    def __init__(self) -> None:
        self.scopes: list[dict[str, str]] = []
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"name {self.count}"

    def new_name(self, name: str) -> str:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), name)

    def _within(self, node: ast.AST) -> None:
        names = bound_by(node)
        if isinstance(node, COMPREHENSIONS):
            walrus = {inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)}
            names = [name for name in names if name not in walrus]
        self.scopes.append(self.chosen(node, names))

    def chosen(self, scope: ast.AST, names: Sequence[str]) -> dict[str, str]:
        """The new names of those that a function, lambda or comprehension binds."""
        return {name: self.fresh() for name in names}

    def visit_Name(self, node: ast.Name) -> None:
        node.id = self.new_name(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        node.arg = self.new_name(node.arg)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        scopes = self.scopes[:1] if isinstance(node, ast.Global) else self.scopes
        node.names = [next((scope[name] for scope in reversed(scopes) if name in scope), name) for name in node.names]

    visit_Nonlocal = visit_Global

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        node.name = self.new_name(node.name)
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self.scopes.append({name: name for name in bound_by_class(node)})
        for statement in node.body:
            self.visit(statement)
        self.scopes.pop()

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        if not isinstance(node, ast.Lambda):
            node.name = self.new_name(node.name)
            for decorator in node.decorator_list:
                self.visit(decorator)
        for default in (*node.args.defaults, *(one for one in node.args.kw_defaults if one)):
            self.visit(default)
        self._within(node)
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                self.visit_arg(argument)
        for part in [node.body] if isinstance(node, ast.Lambda) else node.body:
            self.visit(part)
        self.scopes.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function

    def _comprehension(self, node: ast.AST) -> None:
        self._within(node)
        self.generic_visit(node)
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.asname or "." not in alias.name:
                alias.asname = self.new_name(alias.asname or alias.name)

    visit_ImportFrom = visit_Import

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            node.name = self.new_name(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            node.rest = self.new_name(node.rest)
        super().generic_visit(node)


def bound_by_class(node: ast.ClassDef) -> list[str]:
    """The names that a class body binds: its attributes, which other code may access by name."""
    return bound_by(ast.Module(node.body, []))
