"""Inputs of generated files: a command's arguments and the sources of every module that it imports.

Imports are found by parsing, not by execution. A string that names a module of the project counts as an import: the
registry imports verifiers that way, and the sandbox's client starts its server that way.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def sources(modules: Iterable[str], root: Path = ROOT) -> list[Path]:
    """The files of these modules and of all modules below `root` that they import, directly or indirectly; sorted.

    Raises ValueError for an unknown module.
    """
    waiting, found = list(modules), set[Path]()
    for module in waiting:
        if _file(module, root) is None:
            raise ValueError(f"{root} has no module {module}")
    while waiting:
        name = waiting.pop()
        path = _file(name, root)
        if path is None or path in found:
            continue
        found.add(path)
        # Importing a module also imports its packages.
        waiting.extend(name.rpartition(".")[:1])
        waiting.extend(_imported(ast.parse(path.read_bytes())))
    return sorted(found)


def key(command: Sequence[str], files: Iterable[Path], root: Path = ROOT) -> str:
    """A digest of a command's arguments and of the names and contents of the files that its result depends on."""
    digest = hashlib.sha256("\0".join(command).encode())
    for path in sorted(files):
        name = path.relative_to(root) if path.is_relative_to(root) else path.name
        digest.update(f"\0{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _file(module: str, root: Path) -> Path | None:
    path = root.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if module and file.is_file()), None)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_dotted(node.value):
            yield node.value
            yield f"{node.value}.__main__"  # a package that a subprocess runs


def _is_dotted(text: str) -> bool:
    return "." in text and all(part.isidentifier() for part in text.split("."))
