"""Where our code uses a library: names that it imports and what its subclasses of the library's classes rely on.

Static: reads the source with ast and imports nothing.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Use:
    """A dotted name of the library at a place in our code; ``own`` are the parameters of our override, if it is one."""

    place: str
    name: str
    kind: str  # import | override | super | self
    own: ast.arguments | None = None


@dataclass
class OwnClass:
    """One of our classes: where it is, what its bases are called, and its body."""

    place: str
    module: str
    bases: list[str]
    node: ast.ClassDef


class Reader:
    """Reads our packages; ``classes`` and ``uses`` are filled by ``read``."""

    def __init__(self, library: str):
        self.library = library
        self.classes: dict[str, OwnClass] = {}
        self.uses: list[Use] = []

    def read(self, root: Path, packages: tuple[str, ...]) -> list[Use]:
        """All uses of the library in these packages below ``root``."""
        for file in sorted(file for package in packages for file in (root / package).rglob("*.py")):
            self._read_file(file.relative_to(root), ast.parse(file.read_text()))
        for own in list(self.classes.values()):
            for base in self._library_bases(own, set()):
                self._read_class(own, base)
        return self.uses

    def _read_file(self, file: Path, tree: ast.Module) -> None:
        module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
        aliases = dict(self._imports(file, tree))
        for statement in tree.body:  # NAME = library_name.attribute, as our task runner unwraps a Ray actor
            if (
                isinstance(statement, ast.Assign)
                and (name := dotted(statement.value, aliases))
                and self._is_library(name)
            ):
                aliases |= {target.id: name for target in statement.targets if isinstance(target, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and (name := dotted(node, aliases)) and self._is_library(name):
                self.uses.append(Use(f"{file}:{node.lineno}", name, "import"))
            if isinstance(node, ast.ClassDef):
                local = {other.name: f"{module}.{other.name}" for other in tree.body if isinstance(other, ast.ClassDef)}
                bases = [name for base in node.bases if (name := dotted(base, local | aliases))]
                self.classes[f"{module}.{node.name}"] = OwnClass(str(file), module, bases, node)

    def _imports(self, file: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
        """What each imported name stands for, as (short, dotted); imports of the library are uses."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found = [(alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names]
            elif isinstance(node, ast.Import):
                found = [(alias.asname or alias.name, alias.name) for alias in node.names]
            else:
                continue
            for short, name in found:
                if self._is_library(name):
                    self.uses.append(Use(f"{file}:{node.lineno}", name, "import"))
                # `import a.b` without `as` binds `a`.
                yield (short.split(".")[0],) * 2 if short == name else (short, name)

    def _library_bases(self, own: OwnClass, seen: set[str]) -> Iterator[str]:
        for base in own.bases:
            if self._is_library(base):
                yield base
            elif base in self.classes and base not in seen:
                yield from self._library_bases(self.classes[base], seen | {base})

    def _read_class(self, own: OwnClass, base: str) -> None:
        for member in own.node.body:
            place = f"{own.place}:{member.lineno}"
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                self.uses.append(Use(place, f"{base}.{member.name}", "override", member.args))
            else:
                self.uses += [Use(place, f"{base}.{name}", "override") for name in _assigned_names(member)]
        provided = self._provided(own, set())
        for node in ast.walk(own.node):
            if isinstance(node, ast.Attribute):
                place, name = f"{own.place}:{node.lineno}", f"{base}.{node.attr}"
                if _is_super(node.value):
                    self.uses.append(Use(place, name, "super"))
                elif _is_self(node.value) and node.attr not in provided:
                    self.uses.append(Use(place, name, "self"))

    def _provided(self, own: OwnClass, seen: set[str]) -> set[str]:
        """Methods and attributes that this class of ours, or another of ours above it, brings along."""
        names = {node.name for node in own.node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        names |= {name for node in own.node.body for name in _assigned_names(node)}
        for node in ast.walk(own.node):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
                names.add(node.attr)
        for base in own.bases:
            if base in self.classes and base not in seen:
                names |= self._provided(self.classes[base], seen | {base})
        return names

    def _is_library(self, name: str) -> bool:
        return name == self.library or name.startswith(f"{self.library}.")


def dotted(node: ast.expr, aliases: dict[str, str]) -> str | None:
    """``a.b.c`` with ``a`` replaced by what it was imported as; None for anything else."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute) and (left := dotted(node.value, aliases)):
        return f"{left}.{node.attr}"
    return None


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _assigned_names(node: ast.stmt) -> list[str]:
    """Names that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]
