"""Regular expressions of a package, the methods that use them, and hostile texts for each."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

_METHODS = ("search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn")
_UNBOUNDED = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
_BREAKERS = ("", "!", "\n", "x", "0", "]", "\x00")
# Modules that must not be imported: importing them runs a program.
_NO_IMPORT = ("__main__",)


@dataclass(frozen=True)
class Used:
    """A pattern, the name that holds it, and the methods with which its module uses it."""

    place: str
    pattern: re.Pattern[str]
    methods: tuple[str, ...]

    @property
    def searches(self) -> bool:
        """Whether it is tried at every position of a text."""
        return not self.methods or not {"match", "fullmatch"}.issuperset(self.methods)


def patterns_of(package: ModuleType) -> list[Used]:
    """All patterns that the package's modules assign to names. Raises ValueError for a pattern without a name."""
    found: list[Used] = []
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if info.name.rpartition(".")[2] in _NO_IMPORT:
            continue
        module = importlib.import_module(info.name)
        tree = ast.parse(Path(str(module.__file__)).read_text())
        own = _compiled(tree)
        for name in own:
            pattern = getattr(module, name)
            found.append(Used(f"{info.name}.{name}", pattern, tuple(sorted(_methods(tree, name)))))
        if loose := _loose_calls(tree, len(own)):
            raise ValueError(
                f"{info.name}: {loose}; assign every pattern to a name of its module, so that it is measured"
            )
    return found


def _compiled(tree: ast.Module) -> list[str]:
    return [
        node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_re(node.value, ("compile",))
    ]


def _is_re(node: ast.AST, names: tuple[str, ...]) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and getattr(node.func.value, "id", "") == "re"
        and node.func.attr in names
    )


def _loose_calls(tree: ast.Module, kept: int) -> str:
    calls = [node for node in ast.walk(tree) if _is_re(node, ("compile", *_METHODS))]
    return f"{len(calls)} patterns, {kept} of them in names" if len(calls) > kept else ""


def _methods(tree: ast.Module, name: str) -> set[str]:
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == name and node.attr in _METHODS
    }


def hostile_texts(pattern: re.Pattern[str], length: int, most: int = 400) -> Iterator[str]:
    """Texts of about this length: the start of a match, a run that matches a repeat, and a character that breaks it."""
    parsed = list(_parser.parse(pattern.pattern, pattern.flags))
    letters = sorted(_letters(parsed))
    units = [*letters, *("".join(pair) for pair in product(letters, repeat=2))]
    examples = [_example(parsed[:end]) for end in range(1, len(parsed) + 1)] or [""]
    starts = dict.fromkeys(["", *examples, *_prefixes(parsed)])
    runs = dict.fromkeys(
        [*_bodies(parsed), *letters, *examples, *(f"{one}{two}" for one in examples for two in letters), *units]
    )
    combined = product(islice(filter(None, runs), 60), islice(starts, 8), _BREAKERS)
    for unit, start, end in islice(combined, most * 4):
        yield start + unit * ((length - len(start)) // len(unit)) + end


def _letters(parsed: Any) -> set[str]:
    """One or two characters of every class in a pattern."""
    found: set[str] = set()
    for operator, argument in parsed:
        if operator in (sre.LITERAL, sre.NOT_LITERAL):
            found.add(chr(argument))
        elif operator == sre.IN:
            found.update(_members(argument))
        elif operator == sre.ANY:
            found.add("a")
        for inner in _inside(operator, argument):
            found |= _letters(inner)
    return found


def _members(items: Any) -> Iterator[str]:
    categories = {sre.CATEGORY_DIGIT: "0", sre.CATEGORY_WORD: "a", sre.CATEGORY_SPACE: " "}
    for operator, argument in items:
        if operator == sre.LITERAL:
            yield chr(argument)
        elif operator == sre.RANGE:
            yield chr(argument[0])
        elif operator == sre.CATEGORY:
            yield categories.get(argument, "!")


def _inside(operator: Any, argument: Any) -> list[Any]:
    if operator in (*_UNBOUNDED,):
        return [list(argument[2])]
    if operator == sre.SUBPATTERN:
        return [list(argument[3])]
    if operator == sre.BRANCH:
        return [list(branch) for branch in argument[1]]
    if operator in (sre.ASSERT, sre.ASSERT_NOT):
        return [list(argument[1])]
    return [list(argument)] if operator == sre.ATOMIC_GROUP else []


def _bodies(parsed: Any) -> Iterator[str]:
    """An example of one round of each unbounded repeat."""
    for operator, argument in parsed:
        if operator in _UNBOUNDED and argument[1] == sre.MAXREPEAT:
            yield _example(list(argument[2]))
        for inner in _inside(operator, argument):
            yield from _bodies(inner)


def _prefixes(parsed: Any) -> Iterator[str]:
    """An example of the part before each repeat within its group."""
    for place, (operator, argument) in enumerate(parsed):
        if operator in _UNBOUNDED:
            yield _example(parsed[:place])
        for inner in _inside(operator, argument):
            yield from _prefixes(inner)


def _example(parsed: Any) -> str:
    """A short text that these items match, without regard to its context."""
    text = ""
    for operator, argument in parsed:
        if operator == sre.LITERAL:
            text += chr(argument)
        elif operator == sre.IN:
            text += next(iter(_members(argument)), "!") if argument[0][0] != sre.NEGATE else "!"
        elif operator in (sre.ANY, sre.NOT_LITERAL):
            text += "a"
        elif operator in _UNBOUNDED:
            text += _example(list(argument[2])) * max(1, argument[0])
        elif operator not in (sre.ASSERT, sre.ASSERT_NOT, sre.AT):
            text += next((_example(inner) for inner in _inside(operator, argument)), "")
    return text
