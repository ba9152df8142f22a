"""Renaming of names to the place that binds them, so that statements compare equal wherever they stand in a program.

Parameters of functions and lambdas, variables of comprehensions, and loop variables that nothing else uses get a name
for which one they are. All others stay: numbers by order of appearance would change with every statement before.
"""

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from rewards.analysis.node_kinds import COMPREHENSIONS, FUNCTIONS, NAMED
from rewards.analysis.parsing import parse
from rewards.analysis.renaming import Renaming

# Fields that are evaluated before the others of their node.
_FIRST = ("generators", "iter", "value", "defaults", "kw_defaults")

_NAME = re.compile(r"[^\W\d]\w*")


def names_in(text: str) -> list[str]:
    """Every word of a text that could be a name."""
    return _NAME.findall(text)


def names_read(piece: str) -> set[str]:
    """The names that a statement, or a header of one, reads before it binds them; none if that is not known."""
    tree = parse(piece.strip()) or parse(f"{piece.strip()} pass")
    try:
        return set(_reads(tree, set())) if tree else set()
    except RecursionError:
        return set()


def _reads(node: ast.AST, bound: set[str]) -> Iterator[str]:
    """What a node reads of names that are not bound yet; those that it binds are added."""
    bound.update(_bound_otherwise(node))
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield from {node.target.id} - bound
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        bound.add(node.id)
    elif isinstance(node, ast.Name):
        yield from {node.id} - bound
    inner = set(bound) if isinstance(node, (*FUNCTIONS, *COMPREHENSIONS)) else bound
    for field in sorted(node._fields, key=lambda field: _FIRST.index(field) if field in _FIRST else len(_FIRST)):
        parts = getattr(node, field, None)
        for part in parts if isinstance(parts, list) else [parts]:
            if isinstance(part, ast.AST):
                yield from _reads(part, inner)


def rename_by_place(tree: ast.Module, kept: Collection[str] = ()) -> None:
    """Rename in place. kept: names at module level that stay, since the problem asks for them."""
    renaming = _ByPlace()
    renaming.scopes.append({name: new for name, new in _loop_names(tree, 1).items() if name not in kept})
    for statement in tree.body:
        renaming.visit(statement)


class _ByPlace(Renaming):
    def _within(self, node: ast.AST) -> None:
        if isinstance(node, ast.Lambda):  # most bind their parameters alone
            parameters = _parameters(node)
            depth = len(self.scopes)
            self.scopes.append({name: f"parameter {depth}.{number}" for number, name in enumerate(parameters)})
        else:
            super()._within(node)

    def chosen(self, scope: ast.AST, names: Sequence[str]) -> dict[str, str]:
        depth = len(self.scopes)
        if not isinstance(scope, FUNCTIONS):
            return {name: f"variable {depth}.{number}" for number, name in enumerate(names)}
        parameters = {
            name: f"parameter {depth}.{number}" for number, name in enumerate(_parameters(scope)) if name in names
        }
        return {name: name for name in names} | _loop_names(scope, depth) | parameters


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    arguments = function.args
    rest = [part for part in (arguments.vararg, arguments.kwarg) if part]
    return [part.arg for part in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest)]


def _loop_names(scope: ast.AST, depth: int) -> dict[str, str]:
    """New names of a scope's loop variables that only loops bind and that nothing outside these loops uses."""
    nodes = list(ast.walk(scope))
    if not any(isinstance(node, ast.For | ast.AsyncFor) for node in nodes):
        return {}
    inside: Counter[str] = Counter()
    places: dict[str, set[str]] = {}
    for name, place in _uses_in_loops(scope):
        inside[name] += 1
        if place:
            places.setdefault(name, set()).add(place)
    every = Counter(part.id for part in nodes if isinstance(part, ast.Name))
    otherwise = {name for part in nodes for name in _bound_otherwise(part)}
    return {
        name: f"loop {depth}.{place}"
        for name, (place, *others) in ((name, sorted(found)) for name, found in places.items())
        if not others and inside[name] == every[name] and name not in otherwise
    }


def _uses_in_loops(scope: ast.AST) -> Iterator[tuple[str, str]]:
    """Each use of a loop variable inside its loop; with the loop's nesting and the variable's number at its binding."""
    waiting: list[tuple[ast.AST, frozenset[str], int]] = [(scope, frozenset(), 0)]
    while waiting:
        node, active, nesting = waiting.pop()
        if isinstance(node, ast.For | ast.AsyncFor):
            targets = [part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)]
            yield from ((name, f"{nesting}.{number}") for number, name in enumerate(targets))
            within, nesting = active | set(targets), nesting + 1
            waiting += [(part, within, nesting) for part in (*node.body, *node.orelse)]
            waiting.append((node.iter, active, nesting))
        else:
            if isinstance(node, ast.Name) and node.id in active:
                yield node.id, ""
            waiting += [(part, active, nesting) for part in ast.iter_child_nodes(node)]


def _bound_otherwise(node: ast.AST) -> Iterator[str]:
    """Names that a node binds or declares without their own Name node."""
    if isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, NAMED):
        yield node.name or ""
    elif isinstance(node, ast.MatchMapping):
        yield node.rest or ""
