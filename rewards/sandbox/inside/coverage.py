"""Which statements of a program are executed: a probe before each one, in memory that the worker shares.

Probes are part of the compiled program instead of a trace function, which would cost a Python call per line: a probe is
one store. It distinguishes statements in one line, works in every thread and child process, and what it stored outlives
an exit, an exception or a signal. The memory belongs to the program's process, so its content decides about credit,
never about a verdict.
"""

from __future__ import annotations

import ast
import builtins
import mmap
import os
import types
from collections.abc import Iterator

SIZE = 4096
"""Bytes of the shared memory: the first is 1 once a program has probes, the others stand for its statements."""
NAME = "__executed__"


def share(descriptor: int) -> None:
    """Make the worker's memory available to probes; closes the descriptor."""
    # Python's mapping keeps a duplicate, which gets the lowest free number: programs expect that one for their files.
    spare = os.dup(descriptor)
    os.close(spare)
    setattr(builtins, NAME, mmap.mmap(descriptor, SIZE))
    os.close(spare)
    os.close(descriptor)


def compile_probed(code: str, path: str) -> types.CodeType | None:
    """The program with probes; None if it has too many statements or cannot be compiled with them."""
    try:
        tree = ast.parse(code)
        count = insert_probes(tree)
        if count >= SIZE:
            return None
        compiled = compile(tree, path, "exec", 0, True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return None
    getattr(builtins, NAME)[0] = 1
    return compiled


def insert_probes(tree: ast.Module) -> int:
    """Put a probe before each statement; returns the number of statements."""
    numbers = {node: number for number, node in enumerate(statements(tree))}
    for node in list(ast.walk(tree)):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and body:
                setattr(node, field, _probed(body, numbers))
    ast.fix_missing_locations(tree)
    return len(numbers)


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement below this node in text order, a compound statement before its body."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.stmt):
            yield child
            yield from statements(child)
        elif isinstance(child, (ast.excepthandler, ast.match_case)):
            yield from statements(child)


def _probed(body: list[ast.stmt], numbers: dict[ast.stmt, int]) -> list[ast.stmt]:
    # Docstrings and imports from __future__ must stay first.
    first = 0
    while first < len(body) and _must_come_first(body[first]):
        first += 1
    probes = [_probe(node, numbers[node]) for node in body[:first]]
    rest = [part for node in body[first:] for part in (_probe(node, numbers[node]), node)]
    return [*body[:first], *probes, *rest]


def _must_come_first(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _probe(node: ast.stmt, number: int) -> ast.stmt:
    place = ast.Subscript(ast.Name(NAME, ast.Load()), ast.Constant(number + 1), ast.Store())
    return ast.copy_location(ast.Assign([place], ast.Constant(1)), node)


class ProbeMemory:
    """The worker's side of the shared memory: the statements that the programs of one check executed."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("executed")
        os.ftruncate(self.descriptor, SIZE)
        self._known = bytes(SIZE)

    def new(self) -> list[int] | None:
        """The statements executed since the last call; None if the program has no probes."""
        now = os.pread(self.descriptor, SIZE, 0)
        if len(now) < SIZE or not now[0]:
            return None
        before, self._known = self._known, now
        return [place - 1 for place in range(1, SIZE) if now[place] and not before[place]]

    def close(self) -> None:
        """Release the memory."""
        os.close(self.descriptor)
