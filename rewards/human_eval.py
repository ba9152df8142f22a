"""HumanEval's published form in the terms of verifier `code`: `check(candidate)` becomes unit tests. Pure."""

import ast
from typing import Any

from rewards.verifiers import entry_points


def truth_of(prompt: str, test: str, entry_point: str, solution: str = "    pass\n") -> dict[str, Any]:
    """The ground truth of a problem; SyntaxError or ValueError if its parts are not of the published form.

    prompt: the head of the function, after imports and helper functions. test: defines `check(candidate)`.
    entry_point: the function's name. solution: the rest of the function.
    """
    program = f"{prompt}\n{solution}"
    tests = [entry_points.with_imports(program, unit) for unit in unit_tests(prompt, test, entry_point)]
    return {"tests": tests} | entry_points.named(program, tests)


def unit_tests(prompt: str, test: str, entry_point: str) -> list[str]:
    """The published `check(candidate)` as unit tests: one per assertion if it contains only assertions, which allows
    partial credit, else one for all of it. Tests may use the prompt's helper functions.
    """
    tree = ast.parse(test)
    checks = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if len(checks) != 1 or not checks[0].args.args:
        raise ValueError("the test must define one function check(candidate)")
    check = checks[0]
    before = [node for node in tree.body if node is not check and not _is_idle(node)]
    helpers = "\n".join(map(ast.unparse, [*_helpers(prompt, entry_point), *before]))
    body = [node for node in check.body if not _is_idle(node)]
    if all(isinstance(node, ast.Assert) for node in body):
        pieces = [f"{check.args.args[0].arg} = {entry_point}\n{ast.unparse(node)}" for node in body]
    else:
        pieces = [f"{ast.unparse(check)}\ncheck({entry_point})"]
    return [f"{helpers}\n{piece}".strip() for piece in pieces]


def _helpers(prompt: str, entry_point: str) -> list[ast.stmt]:
    tree = ast.parse(prompt + "\n    pass\n")
    helpers = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == entry_point)]
    return helpers if any(isinstance(node, ast.FunctionDef) for node in helpers) else []


def _is_idle(node: ast.stmt) -> bool:
    """Whether a test does not need a statement: documentation, METADATA, `assert True`."""
    if isinstance(node, ast.Assert):
        return isinstance(node.test, ast.Constant) and bool(node.test.value)
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "METADATA" for target in node.targets)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
