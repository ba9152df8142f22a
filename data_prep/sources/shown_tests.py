"""Tests that a prompt shows (`show_tests`: none, one, all)."""

import argparse
from collections.abc import Sequence
from typing import Literal

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
