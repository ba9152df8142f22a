"""Made files: made again when an input changes, and never overwritten if someone else changed them.

The inputs are a command's arguments, files, and the sources of every module that the command imports. Imports are found
by parsing, not by execution. A string that names a module of the project counts as an import, and so does an import in
a program that a string holds: the registry imports verifiers by name, the sandbox's client starts its server by name,
and a slot of that server starts its worker by such a program. With the registry, the modules of installed packages that
declare verifiers count, too.
"""

import ast
import fcntl
import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from data_prep.files import complete_file, file_hash
from rewards import registry

ROOT = Path(__file__).resolve().parents[1]
BEGUN = "begun"
_IMPORT = re.compile(r"^(?:from|import) ([\w.]+)", re.MULTILINE)


class MadeFilesError(ValueError):
    """Files in the place of made ones that the command did not leave so; the message says how to fix it."""


@dataclass(frozen=True)
class MadeFiles:
    """The files that a command makes, and what it makes them from.

    ``FOLDER/.NAME.key`` records them: `begun KEY` while the command runs; then the key and, for every file, a line
    `SHA256  NAME` as sha256sum prints it.

    patterns: of the files, relative to `folder`. modules: what the command runs with `python -m`. inputs: further files
    that it reads.
    """

    folder: Path
    name: str
    patterns: tuple[str, ...]
    command: tuple[str, ...]
    modules: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()

    @property
    def mark(self) -> Path:
        """The file with the record."""
        return self.folder / f".{self.name}.key"

    @cached_property
    def key(self) -> str:
        """The digest of all inputs as they are now."""
        ours = sources(self.modules)
        installed = registry.installed_files() if Path(registry.__file__) in ours else []
        return key(self.command, [*ours, *installed, *self.inputs])

    def found(self) -> list[Path]:
        """The files that are there, sorted."""
        return sorted({path for pattern in self.patterns for path in self.folder.glob(pattern) if path.is_file()})

    def are_made(self) -> bool:
        """Whether the command has made the files from the present inputs.

        Raises:
            MadeFilesError: making them would destroy, or using them would rely on, what the command did not make.
        """
        lines, found = self._record(), self.found()
        if not lines:
            if found:
                raise MadeFilesError(
                    f"{found[0]} exists, but no {self.mark} records its origin; move {self._these(found)} to another "
                    "folder, or remove them to regenerate them"
                )
            return False
        if lines[0].startswith(BEGUN):
            return False
        digests = {self.folder / name: digest for digest, _, name in (line.partition("  ") for line in lines[1:])}
        if changed := [path for path, digest in digests.items() if path.is_file() and file_hash(path) != digest]:
            raise MadeFilesError(
                f"{changed[0]} has changed since {self.command[0]} made it; restore it, or remove it to regenerate "
                "it. Edited rows belong in another folder"
            )
        if lines[0] == self.key and found and all(path.is_file() for path in digests):
            return True
        if others := [path for path in found if path not in digests]:
            raise MadeFilesError(
                f"{self.folder} must be made again, since the code or the inputs of {self.command[0]} have changed, "
                f"but it does not make {self._these(others)}; move them to another folder"
            )
        return False

    def is_interrupted(self) -> bool:
        """Whether the command began with the present inputs and did not end."""
        return self._record() == [f"{BEGUN} {self.key}"]

    def make(self, run: Callable[[], None]) -> bool:
        """Make the files by `run`, unless they are made; returns whether it ran. MadeFilesError as in `are_made`.

        Earlier files are removed first. The journals of a command that was interrupted, whose names begin with a dot,
        stay if its inputs are the same.
        """
        if self.are_made():
            return False
        resumed = self.is_interrupted()
        self._write([f"{BEGUN} {self.key}"])
        for path in self.found():
            if not (resumed and path.name.startswith(".")):
                path.unlink()
        run()
        made = self.found()
        if not made:
            raise MadeFilesError(f"{' '.join(self.command)} succeeded, but wrote no {' or '.join(self.patterns)}")
        # Inputs that changed while the command ran belong to no file: the key is that of its start.
        self._write([self.key, *(f"{file_hash(path)}  {path.relative_to(self.folder)}" for path in made)])
        return True

    def _record(self) -> list[str]:
        if not self.mark.exists():
            return []
        lines = self.mark.read_text(encoding="utf-8").splitlines()
        begun = lines and re.fullmatch(rf"{BEGUN}( [0-9a-f]{{64}})?", lines[0].strip())
        made = len(lines) > 1 and re.fullmatch("[0-9a-f]{64}", lines[0].strip())  # with files, which `make` requires
        if not begun and not made:
            raise MadeFilesError(
                f"{self.mark} is not a complete record; remove it and the files beside it to regenerate them"
            )
        return [lines[0].strip(), *lines[1:]]

    def _write(self, lines: Sequence[str]) -> None:
        with complete_file(self.mark) as path:
            path.write_text("\n".join([*lines, ""]), encoding="utf-8")

    def _these(self, paths: Sequence[Path]) -> str:
        names = ", ".join(str(path.relative_to(self.folder)) for path in paths[:3])
        return names if len(paths) <= 3 else f"{names} and {len(paths) - 3} more"


@contextmanager
def alone(made: Path, file: Path) -> Iterator[None]:
    """Hold a lock, so that processes which make the same take turns. file: of the lock; its folder is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another process is making {made}; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sources(modules: Sequence[str], root: Path = ROOT) -> list[Path]:
    """The files of these modules and of all modules below `root` that they import, directly or indirectly; sorted.

    A package also has its ``__main__``. Raises ValueError for an unknown module.
    """
    waiting, found = list(modules), set[Path]()
    for module in modules:
        if _file(module, root) is None:
            raise ValueError(f"{root} has no module {module}")
        waiting.append(f"{module}.__main__")
    while waiting:
        name = waiting.pop()
        path = _file(name, root)
        if path is None or path in found:
            continue
        found.add(path)
        # Importing a module also imports its packages.
        waiting.extend(name.rpartition(".")[:1])
        waiting.extend(_imported(path.read_bytes()))
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


@cache
def _imported(source: bytes) -> tuple[str, ...]:
    return tuple(_names(ast.parse(source)))


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _is_dotted(node.value):
                yield node.value
                yield f"{node.value}.__main__"  # a package that a subprocess runs
            yield from _IMPORT.findall(node.value)


def _is_dotted(text: str) -> bool:
    return "." in text and all(part.isidentifier() for part in text.split("."))
