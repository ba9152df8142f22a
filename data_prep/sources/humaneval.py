"""HumanEval: `python -m data_prep.sources.humaneval --out DIR [--show-tests none|one|all]`.

For testing only: preflight refuses to train on it.
"""

import ast
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from data_prep.sources import hub
from data_prep.sources.hub import PublicSet
from data_prep.sources.shown_tests import ShowTests, add_option, in_words, named_entry_points, shown
from data_prep.sources.source import source_parser
from rewards.verifiers import entry_points

PUBLIC = PublicSet(
    "humaneval",
    "openai/openai_humaneval",
    None,
    ("test",),
    ("task_id", "prompt", "canonical_solution", "test", "entry_point"),
    "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
)
_INSTRUCTION = "Complete this function. Answer with the whole program, imports included, in one Python code block."


def convert(record: dict[str, Any], split: str, index: int, *, show_tests: ShowTests = "none") -> dict[str, Any]:
    """The task of a record; the prompt has the examples of its docstring with any `show_tests`."""
    solution = record["prompt"] + record["canonical_solution"]
    units = unit_tests(record["prompt"], record["test"], record["entry_point"])
    tests = [entry_points.with_imports(solution, test) for test in units]
    visible = shown(tests, show_tests)
    return {
        "id": f"humaneval/{record['task_id'].removeprefix('HumanEval/')}",
        "source": "humaneval",
        "split": split,
        "role": "test",
        "skill": "write",
        "verifier": "code",
        "prompt": "\n".join([_INSTRUCTION, f"```python\n{record['prompt'].strip()}\n```", *in_words(visible)]),
        "ground_truth": {"tests": tests, "visible": len(visible)} | named_entry_points(solution, tests),
        "solution": solution,
        "licence": "mit",
    }


def unit_tests(prompt: str, test: str, entry_point: str) -> list[str]:
    """The published `check(candidate)` as unit tests: one per assertion if it contains only assertions, which allows
    partial credit, else one for all of it. Tests may use the prompt's helper functions.
    """
    tree = ast.parse(test)
    (check,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check")
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("humaneval", __doc__)
    hub.add_options(parser, PUBLIC.splits)
    add_option(parser, default="none")
    options = parser.parse_args(arguments)
    converted = partial(convert, show_tests=options.show_tests)
    return hub.make(PUBLIC, options, converted, "code")


if __name__ == "__main__":
    sys.exit(main())
