"""Whether a program is another one with something added: every statement of it stands there, in its order."""

import ast
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from rewards.renaming import rename
from rewards.segments import parse

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def only_adds(program: str, original: str, kept: Collection[str]) -> bool:
    """Whether a program holds every statement of the original, in order, whatever its own names are called.

    kept: names that others ask for, which are never renamed. A program whose statements have no text (a number of more
    digits than Python writes, too deep a nest) is not told from any other: that is True.
    """
    names = tuple(kept)
    # With its own names as well: one more name may shift those that renaming gives.
    return any(_contains(_statements(program, chosen), _statements(original, chosen)) for chosen in (names, None))


def _contains(statements: Sequence[str] | None, wanted: Sequence[str] | None) -> bool:
    if statements is None or wanted is None:
        return True
    left = iter(statements)
    # Each membership test takes up where the one before it has found its statement.
    return bool(wanted) and all(statement in left for statement in wanted)


@lru_cache(maxsize=256)
def _statements(source: str, kept: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The statements of a program in the order of its text, compound ones without what is inside them; renamed but for
    the names that are kept, or as they are (None). None where one of them has no text."""
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
        inner = [getattr(node, name) for name in _BLOCKS if isinstance(getattr(node, name, None), list)]
        fields = {name: value for name, value in ast.iter_fields(node) if name not in _BLOCKS}
        yield f"{type(node).__name__} {[_shown(value) for value in fields.values()]}"
        for part in inner:
            yield from _dumps(part)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return str([_shown(item) for item in value])
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)
