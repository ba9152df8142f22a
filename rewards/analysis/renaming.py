"""Gives every name that a program chooses a number, scope by scope: programs that differ in such names only are alike.

Builtins, attributes, keywords of calls, what a class defines and the names that the caller keeps stay as they are.
"""

import ast
from collections.abc import Collection, Iterator

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NAMED = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar),
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def rename(tree: ast.Module, kept: Collection[str]) -> set[str]:
    """Renames in place, names numbered in order of appearance; returns the names that the module itself binds."""
    renaming = _Renaming()
    names = {name: name for name in bound_by(tree) if name in kept}
    renaming.scopes.append(names | {name: renaming.fresh() for name in bound_by(tree) if name not in kept})
    for statement in tree.body:
        renaming.visit(statement)
    return set(renaming.scopes[0].values())


def bound_by(scope: ast.AST) -> list[str]:
    """The names that a module, function or comprehension binds itself, in order of appearance."""
    found: dict[str, None] = {}
    outside: set[str] = set()
    for node in _own_nodes(scope):
        if isinstance(node, ast.Global | ast.Nonlocal):
            outside.update(node.names)
        for name in _bound_at(node):
            found.setdefault(name)
    return [name for name in found if name not in outside]


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope in order, without those of the scopes inside it, but with these scopes' own nodes."""
    waiting = list(reversed(_parts(scope)))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _COMPREHENSIONS):
            # A walrus in a comprehension binds outside of it.
            yield from (inner.target for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
        elif not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _parts(scope: ast.AST) -> list[ast.AST]:
    if isinstance(scope, _COMPREHENSIONS):
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
    elif isinstance(node, _NAMED) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    elif isinstance(node, ast.Import | ast.ImportFrom):
        # `import a.b` binds a: no other name can be given to it in one way.
        yield from (alias.asname or alias.name for alias in node.names if alias.asname or "." not in alias.name)


class _Renaming(ast.NodeVisitor):
    def __init__(self) -> None:
        self.scopes: list[dict[str, str]] = []
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"name {self.count}"

    def now(self, name: str) -> str:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), name)

    def _within(self, node: ast.AST) -> None:
        names = bound_by(node)
        if isinstance(node, _COMPREHENSIONS):
            walrus = {inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)}
            names = [name for name in names if name not in walrus]
        self.scopes.append({name: self.fresh() for name in names})

    def visit_Name(self, node: ast.Name) -> None:
        node.id = self.now(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        node.arg = self.now(node.arg)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        scopes = self.scopes[:1] if isinstance(node, ast.Global) else self.scopes
        known = [next((scope[name] for scope in reversed(scopes) if name in scope), name) for name in node.names]
        node.names = known

    visit_Nonlocal = visit_Global

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        node.name = self.now(node.name)
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self.scopes.append({name: name for name in bound_by_class(node)})
        for statement in node.body:
            self.visit(statement)
        self.scopes.pop()

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        if not isinstance(node, ast.Lambda):
            node.name = self.now(node.name)
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
                alias.asname = self.now(alias.asname or alias.name)

    visit_ImportFrom = visit_Import

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            node.name = self.now(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            node.rest = self.now(node.rest)
        super().generic_visit(node)


def bound_by_class(node: ast.ClassDef) -> list[str]:
    """The names that a class body binds: its attributes, which others may ask for by name."""
    return bound_by(ast.Module(node.body, []))
