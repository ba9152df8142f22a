"""Steps that no test executed: deleting one changes nothing, so its credit is 0 without a replay.

The sandbox reports the executed statements of the solution in the layout of its replays. A statement that was not
executed may still count: the compiler reads the whole function, so that a binding makes a name local and `yield` makes
a generator, and a program may look at its own code. Such steps are replayed as any other.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from rewards.analysis.node_kinds import COMPREHENSIONS
from rewards.analysis.parsing import is_bare_constant, parse, statements
from rewards.counterfactual.interventions import tree_of
from rewards.counterfactual.replayer import ExecutedProgram
from rewards.counterfactual.segments import Step

# Means to read the program's text, its compiled code or its names; a program with any of them is replayed throughout.
_INTROSPECTION = frozenset((
    "__annotations__", "__code__", "__dict__", "__doc__", "__file__", "__import__", "_getframe", "argv", "compile",
    "dir", "eval", "exec", "extract_stack", "gc", "getframe", "globals", "importlib", "inspect", "locals", "monitoring",
    "py", "runpy", "setprofile", "settrace", "subprocess", "tb_lineno", "traceback", "tracemalloc", "vars",
))  # fmt: skip

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_OWN_NAMES = (ast.Lambda, *COMPREHENSIONS)


@dataclass(frozen=True)
class _StatementPlace:
    """A statement, the function or class around it, and whether names there are settled when it is compiled."""

    node: ast.stmt
    scope: _Scope | None = None
    settled: bool = False


@dataclass(frozen=True)
class _ScopeNames:
    """What executed code of a scope mentions, how often the scope binds each name, and whether `nonlocal` is in it."""

    alive: set[str]
    binders: Counter[str]
    has_nonlocal: bool


def unexecuted_steps(solution: str, steps: Sequence[Step], executed: ExecutedProgram | None) -> frozenset[int]:
    """The steps that no test executed and that no executed code depends on; none if that is not known.

    executed: of a program with the statements of this solution, in any layout.
    """
    tree, positions = tree_of(solution, steps)
    ran_tree = parse(executed.code) if executed is not None else None
    if executed is None or tree is None or ran_tree is None or ast.dump(tree) != ast.dump(ran_tree):
        return frozenset()
    if not _INTROSPECTION.isdisjoint(_mentioned(ast.walk(tree))):
        return frozenset()
    numbers = {node: number for number, node in enumerate(statements(tree))}
    ran = {node for node, number in numbers.items() if number in executed.statements}

    @cache
    def names_of(scope: _Scope) -> _ScopeNames:
        arguments = ast.walk(scope.args) if isinstance(scope, _FUNCTIONS) else ()
        parameters = [part for part in arguments if isinstance(part, ast.arg)]
        binders = _binders([*parameters, *scope.body])
        has_nonlocal = any(isinstance(part, ast.Nonlocal) for part in ast.walk(scope))
        return _ScopeNames(_mentioned(_alive(scope, ran)), binders, has_nonlocal)

    return frozenset(positions[numbers[place.node]] for place in _places(tree) if _is_idle(place, ran, names_of))


def _places(node: ast.AST, around: _StatementPlace | None = None) -> Iterator[_StatementPlace]:
    """Every statement below a node. around: the one that is the innermost scope."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            scope = around.node if around else None
            assert scope is None or isinstance(scope, _SCOPES)
            here = _StatementPlace(
                child, scope, isinstance(scope, _FUNCTIONS) or (around is not None and around.settled)
            )
            yield here
            yield from _places(child, here if isinstance(child, _SCOPES) else around)
        elif isinstance(child, ast.excepthandler | ast.match_case):
            yield from _places(child, around)


def _is_idle(place: _StatementPlace, ran: set[ast.stmt], names_of: Callable[[_Scope], _ScopeNames]) -> bool:
    """Whether this statement was not executed, and what was compiles to the same without it."""
    node, scope = place.node, place.scope
    if node in ran or is_bare_constant(node):
        return False
    if scope is None or not place.settled:
        return True  # names of a module, or of a class in it, are looked up when they are used
    inside = set(ast.walk(node))
    if any(isinstance(part, ast.Yield | ast.YieldFrom) for part in inside):
        return False
    was_entered = scope.body[0] in ran or is_bare_constant(scope.body[0])
    if not was_entered:
        # Nothing in this scope ran. But `nonlocal` of a name that is nowhere bound is an error of syntax.
        return not names_of(scope).has_nonlocal
    if any(isinstance(part, ast.Global | ast.Nonlocal) for part in inside):
        return False
    names, own = names_of(scope), _binders([node])
    shared = _mentioned(inside, bound=True) & names.alive
    return all(names.binders[name] > own[name] for name in shared)


def _alive(scope: ast.AST, ran: set[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of the statements of a scope that were executed, and its declarations, which are never executed."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.stmt) or child in ran:
            yield child
            yield from _alive(child, ran)
        else:
            yield from (part for part in ast.walk(child) if isinstance(part, ast.Global | ast.Nonlocal))


def _mentioned(nodes: Iterable[ast.AST], *, bound: bool = False) -> set[str]:
    """The names, attributes, keywords and strings in these nodes; with `bound` no names that are only read."""
    mentioned: set[str] = set()
    for node in nodes:
        if bound and isinstance(node, ast.Attribute | ast.keyword):
            continue
        if bound and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            continue
        words = (getattr(node, field, None) for field in ("id", "name", "asname", "arg", "attr", "rest", "value"))
        mentioned.update(word for word in words if isinstance(word, str))
        mentioned.update(getattr(node, "names", ()) if isinstance(node, ast.Global | ast.Nonlocal) else ())
    return {part for word in mentioned for part in word.split(".")}


def _binders(nodes: Iterable[ast.AST]) -> Counter[str]:
    """How many parts of these nodes bind each name of their scope without doubt."""
    binders: Counter[str] = Counter()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, _SCOPES):
            binders[node.name] += 1
        elif isinstance(node, ast.arg):
            binders[node.arg] += 1
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            binders[node.id] += 1
        if not isinstance(node, (*_SCOPES, *_OWN_NAMES)):
            waiting += ast.iter_child_nodes(node)
    return binders
