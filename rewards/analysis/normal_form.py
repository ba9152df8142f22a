"""Comparison of programs by a normal form without layout, comments, the program's own names and idle code.

`same_program`: equal normal forms. `only_adds`: the program has every statement of the original, in order. Idle code:
annotations, constants, `pass`, `if True:`, unreachable code, unused assignments, imports and functions, and functions
that only forward their arguments.
"""

import ast
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from types import CodeType

from rewards.analysis.idle_code import without_idle_code
from rewards.analysis.node_kinds import BLOCKS
from rewards.analysis.parsing import parse
from rewards.analysis.renaming import rename
from rewards.analysis.unused_code import without_unused_code


def only_adds(program: str, original: str, kept: Collection[str]) -> bool:
    """Whether a program has every statement of the original, in order, up to the names that it chooses.

    kept: names that the caller uses, which are never renamed. Also True if a statement of either program cannot be
    printed (a number with more digits than Python prints, too deep nesting).
    """
    names = tuple(kept)
    # Compared without renaming too: one added name may shift the numbers that renaming assigns.
    return any(_contains(_statements(program, chosen), _statements(original, chosen)) for chosen in (names, None))


def _contains(statements: Sequence[str] | None, wanted: Sequence[str] | None) -> bool:
    if statements is None or wanted is None:
        return True
    left = iter(statements)
    # Each membership test resumes after the statement that the previous one found.
    return bool(wanted) and all(statement in left for statement in wanted)


@lru_cache(maxsize=256)
def _statements(source: str, kept: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The statements of a program in the order of its text, compound ones without their bodies.

    kept: names that are not renamed; None: no name is. Returns None if a statement cannot be printed.
    """
    tree = parse(source)
    if tree is None:
        return ()
    try:
        if kept is not None:
            rename(tree, kept)
        return tuple(_dumps(tree.body))
    except (ValueError, RecursionError):
        return None


def _dumps(block: list[ast.AST] | list[ast.stmt]) -> Iterator[str]:
    for node in block:
        inner = [getattr(node, name) for name in BLOCKS if isinstance(getattr(node, name, None), list)]
        fields = {name: value for name, value in ast.iter_fields(node) if name not in BLOCKS}
        yield f"{type(node).__name__} {[_shown(value) for value in fields.values()]}"
        for part in inner:
            yield from _dumps(part)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return str([_shown(item) for item in value])
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)


# A pass may expose more idle code: a loop whose body was unused, then a name that only that loop read.
_PASSES = 3
# Keeps the time for the normal form of a hostile text below a second in the judging process.
MAX_CHARACTERS = 16_384


def same_program(program: str, original: str, kept: Collection[str]) -> bool:
    """Whether two programs have the same normal form. kept: names that the caller uses, which are never renamed.

    Also True if either program has no normal form (it does not compile, nests too deep, or is longer than
    MAX_CHARACTERS).
    """
    form, expected = normal_form(program, kept), _known_form(original, tuple(kept))
    return form is None or expected is None or form == expected


# Cached because a row's original is compared with every answer of its group.
@lru_cache(maxsize=256)
def _known_form(source: str, kept: tuple[str, ...]) -> object | None:
    return normal_form(source, kept)


def normal_form(source: str, kept: Collection[str]) -> object | None:
    """The normal form of a program, only for comparisons; None if it has none."""
    if len(source) > MAX_CHARACTERS:
        return None
    try:
        tree = ast.parse(source)
        for _ in range(_PASSES):
            rename(tree, kept)
            tree = without_unused_code(without_idle_code(tree), kept)
        tree = without_idle_code(_without_forwarding(tree))
        rename(tree, kept)
        return _of_code(compile(ast.fix_missing_locations(tree), "", "exec", optimize=2, dont_inherit=True))
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def _without_forwarding(tree: ast.Module) -> ast.Module:
    """Remove `f = g` and `def f(x): return g(x)` if nothing else uses the module's function g; rename g to f."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in list(tree.body):
        name, target = _forwarded(node)
        if name != target and target in functions and name is not None:
            recursive_uses = _uses(functions[target], target)
            if _uses(tree, target) - recursive_uses == 1:
                tree.body.remove(node)
                functions[target].name = name
                functions[name] = functions.pop(target)
                for part in ast.walk(functions[name]):
                    if isinstance(part, ast.Name) and part.id == target:
                        part.id = name
    return tree


def _uses(tree: ast.AST, name: str) -> int:
    return sum(isinstance(part, ast.Name) and part.id == name for part in ast.walk(tree))


def _forwarded(node: ast.stmt) -> tuple[str | None, str | None]:
    """The name that a statement binds, and the function that it forwards to."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        name, value = node.targets[0].id, node.value
        if isinstance(value, ast.Lambda):
            return name, _forwarded_to(value.args, value.body)
        return name, getattr(value, "id", None)
    if isinstance(node, ast.FunctionDef) and not node.decorator_list and len(node.body) == 1:
        (last,) = node.body
        return node.name, _forwarded_to(node.args, last.value) if isinstance(last, ast.Return) else None
    return None, None


def _forwarded_to(arguments: ast.arguments, value: ast.expr | None) -> str | None:
    """The function that is called with exactly these arguments, in order."""
    if not isinstance(value, ast.Call) or value.keywords or not isinstance(value.func, ast.Name):
        return None
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    plain = [argument.id for argument in value.args if isinstance(argument, ast.Name)]
    starred = [
        part.value.id for part in value.args if isinstance(part, ast.Starred) and isinstance(part.value, ast.Name)
    ]
    rest = [arguments.vararg.arg] if arguments.vararg else []
    return value.func.id if names == plain and rest == starred and not arguments.kwonlyargs else None


def _of_code(code: CodeType) -> object:
    """A code object as a comparable value, without names of local variables and positions in the source."""
    constants = tuple(
        _of_code(one) if isinstance(one, CodeType) else (type(one), _distinct(one)) for one in code.co_consts
    )
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return code.co_code, constants, code.co_names, counts, code.co_exceptiontable


def _distinct(value: object) -> object:
    """A constant as a comparable value: 1 and True, 0.0 and -0.0 differ. Large whole numbers have no repr."""
    if isinstance(value, tuple | frozenset):
        parts = [(type(one).__name__, _distinct(one)) for one in value]
        return tuple(parts) if isinstance(value, tuple) else frozenset(parts)
    return value if isinstance(value, int) else repr(value)
