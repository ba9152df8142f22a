"""MBPP: `python -m data_prep.sources.mbpp --out DIR [--version full|sanitized] [--show-tests none|one|all]`.

Writes train, mbpp_reg, test and prompt. `mbpp_reg` (role dev) is for quick regression checks: the published validation
split and 60 fixed problems of train, 150 problems in the full version. The test split stays as published.
"""

import ast
import random
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from data_prep.sources import hub
from data_prep.sources.hub import PublicSet
from data_prep.sources.source import ShowTests, add_show_tests, shown_lines, shown_tests, source_parser
from rewards.verifiers import entry_points

_SPLITS = ("train", "validation", "test", "prompt")
_REVISION = "4bb6404fdc6cacfda99d4ac4205087b89d32030c"
VERSIONS = {
    "full": PublicSet(
        "mbpp",
        "google-research-datasets/mbpp",
        "full",
        _SPLITS,
        ("task_id", "text", "code", "test_list", "test_setup_code"),
        _REVISION,
        "cc-by-4.0",
    ),
    "sanitized": PublicSet(
        "mbpp",
        "google-research-datasets/mbpp",
        "sanitized",
        _SPLITS,
        ("task_id", "prompt", "code", "test_list", "test_imports"),
        _REVISION,
        "cc-by-4.0",
    ),
}

# Task ids 601 to 974 are MBPP's training problems.
_REGRESSION_IDS = frozenset(random.Random("mbpp_reg").sample(range(601, 975), 60))
_ROLES = {"train": "train", "prompt": "train", "mbpp_reg": "dev", "test": "test"}


def convert(record: dict[str, Any], split: str, index: int, *, show_tests: ShowTests = "one") -> dict[str, Any]:
    """The task of a record of either version. show_tests: the tests that the prompt shows."""
    number = int(record["task_id"])
    split = "mbpp_reg" if split == "validation" or number in _REGRESSION_IDS else split
    text = record["text"] if "text" in record else record["prompt"]
    setup = record["test_setup_code"] if "test_setup_code" in record else "\n".join(record["test_imports"])
    tests = [test.strip() for test in record["test_list"]]
    visible = shown_tests(tests, show_tests)
    solution = record["code"].replace("\r\n", "\n").strip()
    setup = setup.replace("\r\n", "\n").strip()
    units = [entry_points.with_imports(solution, f"{setup}\n{test}".strip()) for test in tests]
    return {
        "id": f"mbpp/{number}",
        "source": "mbpp",
        "split": split,
        "role": _ROLES[split],
        "skill": "write",
        "verifier": "code",
        "prompt": _prompt(text.strip(), _function(solution, tests), visible),
        "ground_truth": {"tests": units, "visible": len(visible)} | entry_points.named(solution, units),
        "solution": solution,
    }


def _prompt(text: str, function: str, visible: Sequence[str]) -> str:
    asked = f"Call the function `{function}`. Answer with the whole program in one Python code block."
    return "\n".join([text, asked, *shown_lines(visible)])


def _function(solution: str, tests: list[str]) -> str:
    """The function of the solution that the tests call."""
    defined = [node.name for node in ast.parse(solution).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    called = {node.id for test in tests for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)}
    for name in reversed(defined):
        if name in called:
            return name
    raise ValueError("the tests call no function of the solution")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("mbpp", __doc__)
    hub.add_options(parser, _SPLITS)
    parser.add_argument("--version", choices=VERSIONS, default="full")
    add_show_tests(parser, default="one")
    options = parser.parse_args(arguments)
    converted = partial(convert, show_tests=options.show_tests)
    return hub.make(VERSIONS[options.version], options, converted, "code")


if __name__ == "__main__":
    sys.exit(main())
