"""Tests that a prompt shows (`show_tests`: none, one, all), and entry points that a ground truth must list."""

import argparse
from collections.abc import Sequence
from typing import Literal

from rewards.verifiers.entry_points import unknown_to_derivation


def named_entry_points(solution: str, tests: Sequence[str]) -> dict[str, list[str]]:
    """`entry_points` of a ground truth, from the reference solution; empty if the tests alone determine them."""
    named = unknown_to_derivation(solution, tests)
    return {"entry_points": named} if named else {}


ShowTests = Literal["none", "one", "all"]
_COUNTS: dict[ShowTests, int | None] = {"none": 0, "one": 1, "all": None}


def add_option(parser: argparse.ArgumentParser, default: ShowTests) -> None:
    """Add the option `--show-tests`."""
    parser.add_argument("--show-tests", choices=_COUNTS, default=default, help="tests that the prompt shows")


def shown(tests: Sequence[str], show: ShowTests) -> Sequence[str]:
    """The tests that the prompt shows: the first ones, whose number is `visible` in the ground truth."""
    return tests[: _COUNTS[show]]


def in_words(tests: Sequence[str]) -> list[str]:
    """The lines of a prompt that show these tests; empty for no tests."""
    if not tests:
        return []
    return [
        f"It must pass {'this test' if len(tests) == 1 else 'these tests'}:",
        "```python\n" + "\n".join(tests) + "\n```",
    ]
