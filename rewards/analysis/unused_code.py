"""Removal of statements that only serve unused names.

Names must be unique in the program (rewards/analysis/renaming.py), so that one graph of names and statements determines
what is used.
"""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from rewards.analysis.idle_code import is_pure
from rewards.analysis.node_kinds import BLOCKS

_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Expressions whose value is a new object; calls are checked separately.
_CREATES = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.BinOp)
_MUTATORS = frozenset(("append", "extend", "insert", "add", "update", "remove", "discard", "sort", "reverse", "clear"))

Node = ast.AST | str


def without_unused_code(tree: ast.Module, kept: Collection[str]) -> ast.Module:
    """The module without statements that serve neither an effect nor a name of `kept`; changes the given tree."""
    for block in _blocks(tree):
        block[:] = _without_dead_stores(block, kept)
    graph = _Graph(tree, kept)
    for block in _blocks(tree):
        block[:] = [statement for statement in block if statement in graph.used]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [alias for alias in node.names if _bound(alias) in graph.used]
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) and getattr(node, "body", None) == []:
            vars(node)["body"] = [ast.Pass()]
    return tree


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    return [
        block
        for node in ast.walk(tree)
        for field in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, field, None), list) and block
    ]


def _names(node: ast.AST) -> Iterator[str]:
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load))


def _without_dead_stores(block: list[ast.stmt], kept: Collection[str]) -> list[ast.stmt]:
    """The statements without assignments that a later one overwrites before anything reads the name."""
    left: list[ast.stmt] = []
    overwritten: set[str] = set()
    for statement in reversed(block):
        name = _plain_target(statement)
        if name in overwritten and isinstance(statement, ast.Assign) and is_pure(statement.value):
            continue
        if name is not None and name not in kept:
            overwritten.add(name)
        overwritten.difference_update(_names(statement))
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            overwritten.discard(statement.target.id)
        if any(isinstance(part, ast.Break | ast.Continue | ast.Try) for part in ast.walk(statement)):
            overwritten.clear()
        left.append(statement)
    return left[::-1]


def _plain_target(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return getattr(statement.targets[0], "id", None)
    return None


class _Graph:
    """The used names and statements: a used statement needs the names that it reads and the statements around it, a
    used name all statements that bind it.
    """

    def __init__(self, tree: ast.Module, kept: Collection[str]) -> None:
        self.needs: dict[Node, list[Node]] = defaultdict(list)
        self.used: set[Node] = set()
        self.fresh = _fresh_names(tree)
        self._read(tree.body, [], tree, None)
        self._mark([tree, *kept])

    def _mark(self, waiting: list[Node]) -> None:
        while waiting:
            node = waiting.pop()
            if node not in self.used:
                self.used.add(node)
                waiting += self.needs[node]

    def _read(self, block: Iterable[ast.stmt], around: list[Node], owner: Node, loop: ast.stmt | None) -> None:
        """owner: the module or the function around these statements: if it is used, their effects are."""
        for node in block:
            self.needs[node] += around
            self._connect(node, owner, loop)
            inside = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else owner
            if isinstance(node, ast.ClassDef):
                # A class body runs at its definition, and any part of it may be accessed by name.
                self.needs[node] += node.body
            is_loop = isinstance(node, ast.For | ast.AsyncFor | ast.While)
            for field in BLOCKS:
                parts = getattr(node, field, [])
                inner = [one for part in parts for one in ([part] if isinstance(part, ast.stmt) else part.body)]
                self._read(inner, [node], inside, node if is_loop else loop)

    def _connect(self, node: ast.stmt, owner: Node, loop: ast.stmt | None) -> None:
        parts = list(_own_parts(node))
        self.needs[node] += [name for part in parts for name in _names(part)]
        bound = [name for part in parts for name in self._binds(part)]
        for name in bound:
            self.needs[name].append(node)
        if isinstance(node, ast.Break | ast.Continue):
            self.needs[loop or owner].append(node)
        elif self._has_effect(node, parts):
            self.needs[owner].append(node)

    def _binds(self, part: ast.AST) -> Iterator[str]:
        if isinstance(part, ast.alias):
            yield _bound(part)
        elif isinstance(part, _DEFINES):
            yield part.name
        for node in ast.walk(part) if not isinstance(part, _DEFINES) else ():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
        if name := _changed(part):
            yield name

    def _has_effect(self, node: ast.stmt, parts: list[ast.AST]) -> bool:
        if isinstance(node, (*_DEFINES, ast.Import, ast.ImportFrom)):
            return bool(getattr(node, "decorator_list", [])) or any(getattr(part, "name", "") == "*" for part in parts)
        if isinstance(node, ast.Assign | ast.AugAssign):
            return not (all(map(self._is_own, _targets(node))) and is_pure(node.value))
        if isinstance(node, ast.Expr):
            call = node.value
            return not (_changed(call) in self.fresh and isinstance(call, ast.Call) and all(map(is_pure, call.args)))
        if isinstance(node, ast.If | ast.While):
            return not is_pure(node.test)
        if isinstance(node, ast.For):
            return not (self._is_own(node.target) and is_pure(node.iter))
        return True

    def _is_own(self, target: ast.expr) -> bool:
        """Whether a store to this target is visible only through the program's names."""
        if isinstance(target, ast.Tuple | ast.List):
            return all(map(self._is_own, target.elts))
        return isinstance(target, ast.Name) or _changed(target) in self.fresh


def _targets(node: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _own_parts(node: ast.stmt) -> Iterator[ast.AST]:
    """The parts of a statement that belong to no nested statement."""
    if isinstance(node, _DEFINES):
        yield ast.Name(node.name, ast.Store())
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ExceptHandler):
            yield from (part for part in (child.type,) if part)
        elif isinstance(child, ast.match_case):
            yield from (part for part in (child.pattern, child.guard) if part)
        elif not isinstance(child, ast.stmt):
            yield child


def _changed(node: ast.AST) -> str | None:
    """The name whose value a target (`x[0]`) or a call (`x.append(1)`) changes."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
        return node.value.id
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
        return getattr(node.func.value, "id", None)
    return None


def _fresh_names(tree: ast.Module) -> set[str]:
    """Names that only ever hold values created for them, so that no other name sees a change of the value."""
    values: dict[str, list[bool]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            values[node.arg].append(False)
        elif isinstance(node, ast.Assign):
            creates = isinstance(node.value, _CREATES) or (isinstance(node.value, ast.Call) and is_pure(node.value))
            for target in node.targets:
                for part in _stores(target):
                    values[part.id].append(creates and part is target)
        elif isinstance(node, ast.For | ast.comprehension | ast.NamedExpr):
            for part in _stores(node.target):
                values[part.id].append(False)
        elif isinstance(node, ast.With):
            for part in _stores(node):
                values[part.id].append(False)
    return {name for name, created in values.items() if all(created)}


def _stores(node: ast.AST) -> Iterator[ast.Name]:
    """The names that a node assigns."""
    return (part for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
