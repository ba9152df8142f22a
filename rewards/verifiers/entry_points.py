"""Entry points: the names in unit tests that the program must define. Pure.

A name that a test uses without defining or importing it is the program's, unless it is a builtin, a module of the
standard library or the usual name of a library: those mean the original (rewards/sandbox/inside/judge.py), so that no
program can substitute its own. A row whose program must define such a name lists it in `entry_points`.
"""

import ast
import builtins
import sys
from collections.abc import Collection, Sequence

from rewards.sandbox.inside.judge import LIBRARIES, free_names

_STANDARD = frozenset(dir(builtins)) | sys.stdlib_module_names | {"__name__", "__file__", "__doc__"}


def derived(tests: Sequence[str]) -> list[str]:
    """The names in these tests that can only be the program's, sorted."""
    used = frozenset[str]().union(*map(free_names, tests))
    return sorted(used - _STANDARD - LIBRARIES.keys())


def require_entry_points(tests: Sequence[str], named: Collection[str]) -> None:
    """Raise ValueError for a test that uses nothing of the program, or uses a library without importing it.

    named: the entry points that the row lists.
    """
    known = set(named) | set(derived(tests))
    for number, test in enumerate(tests):
        names = free_names(test)
        if missing := sorted((names & LIBRARIES.keys()) - known):
            raise ValueError(
                f"test {number} uses {', '.join(missing)} without importing it: {test[:200]!r}; import it in the test, "
                "or list it in entry_points if the program must define it"
            )
        if names.isdisjoint(known):
            raise ValueError(
                f"test {number} uses nothing that the program defines: {test[:200]!r}; list the names that it takes "
                f"from the program in entry_points{_candidates(names)}"
            )


def _candidates(names: Collection[str]) -> str:
    return f" ({', '.join(sorted(names))}?)" if names else ""


def of_solution(solution: str, tests: Sequence[str]) -> list[str]:
    """The names that a solution binds at its top level, other than by import, and that these tests read, sorted."""
    used = frozenset[str]().union(*map(free_names, tests))
    return sorted(used & _defined(ast.parse(solution)))


def unknown_to_derivation(solution: str, tests: Sequence[str]) -> list[str]:
    """The entry points of a solution that must be listed because a builtin or a library has the same name."""
    return sorted(set(of_solution(solution, tests)) - set(derived(tests)))


def named(solution: str, tests: Sequence[str]) -> dict[str, list[str]]:
    """`entry_points` of a ground truth, from the reference solution; empty if the tests alone determine them."""
    found = unknown_to_derivation(solution, tests)
    return {"entry_points": found} if found else {}


def with_imports(solution: str, test: str) -> str:
    """The test, preceded by the imports of the solution that it relies on."""
    tree = ast.parse(solution)
    needed = free_names(test) - _defined(tree)
    imports = []
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            aliases = [alias for alias in node.names if (alias.asname or alias.name).partition(".")[0] in needed]
            if aliases:
                node.names = aliases
                imports.append(ast.unparse(node))
    return "\n".join([*imports, test])


def _defined(tree: ast.Module) -> set[str]:
    """The names that a program binds at its top level, also inside `if`, `for`, `try` and `with`, but not by import."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            waiting += ast.iter_child_nodes(node)
    return names
