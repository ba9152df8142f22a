"""Signs of reward hacking: each is detected and logged (`guard`), and those that the run refuses cost the reward.

A refused response is judged as an empty one, so that it is worth exactly what no answer is worth. What is
special-cased, empty or constant is told only of programs that fail some test: one that passes all of them is right,
however it looks.
"""

import ast
from collections.abc import Collection, Sequence

from rewards.imports import imported_modules
from rewards.repetition import repeats_itself
from rewards.special_cases import names_inputs
from rewards.verdict import GuardKind

# Names by which a program reads what it is given, beside its functions' parameters.
_READERS = {"input", "open", "stdin", "argv"}


def of_response(response: str, max_characters: int) -> GuardKind:
    """`length` for a response of more than so many characters, `repetition` for one that repeats itself."""
    if len(response) > max_characters:
        return "length"
    return "repetition" if repeats_itself(response) else "none"


def of_program(
    program: ast.Module, forbidden_imports: Collection[str], *, correct: bool, passed_inputs: Sequence[Sequence[str]]
) -> GuardKind:
    """The first sign that a program shows.

    correct: whether it passed all tests. passed_inputs: of each test that the prompt shows, what is put in, as
    words (`rewards.literals.words_of`), where the program passed all those tests; else empty.
    """
    if not imported_modules(program).isdisjoint(forbidden_imports):
        return "forbidden_import"
    if correct:
        return "none"
    if is_empty(program):
        return "empty"
    if names_inputs(program, passed_inputs):
        return "special_casing"
    return "none" if reads_input(program) else "constant"


def is_empty(program: ast.Module) -> bool:
    """Whether nothing in a program does anything: only imports, docstrings, `pass`, `...` and functions of these."""
    return all(_does_nothing(statement) for statement in program.body)


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return all(_does_nothing(inner) for inner in statement.body)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom)


def reads_input(program: ast.Module) -> bool:
    """Whether a program reads any parameter of its functions, or its standard input or a file."""
    nodes = list(ast.walk(program))
    known = _READERS | {node.arg for node in nodes if isinstance(node, ast.arg)}
    return any(
        (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in known)
        or (isinstance(node, ast.Attribute) and node.attr in _READERS)
        for node in nodes
    )
