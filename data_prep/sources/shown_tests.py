"""How many tests a prompt shows (`show_tests`: none, one, all), and which entry points a ground truth has to name."""

import argparse
from collections.abc import Sequence
from typing import Literal

from rewards.verifiers.entry_points import unknown_to_derivation


def named_entry_points(solution: str, tests: Sequence[str]) -> dict[str, list[str]]:
    """`entry_points` of a ground truth, taken from the reference solution; nothing where its tests show them all."""
    named = unknown_to_derivation(solution, tests)
    return {"entry_points": named} if named else {}


ShowTests = Literal["none", "one", "all"]
_COUNTS: dict[ShowTests, int | None] = {"none": 0, "one": 1, "all": None}


def add_option(parser: argparse.ArgumentParser, default: ShowTests) -> None:
    """The option `--show-tests`."""
    parser.add_argument("--show-tests", choices=_COUNTS, default=default, help="of its tests, in the prompt")


def shown(tests: Sequence[str], show: ShowTests) -> Sequence[str]:
    """The tests that the prompt shows: the first ones, as `visible` of a ground truth counts them."""
    return tests[: _COUNTS[show]]


def in_words(tests: Sequence[str]) -> list[str]:
    """The lines of a prompt that show these tests; none for none."""
    if not tests:
        return []
    return [
        f"It must pass {'this test' if len(tests) == 1 else 'these tests'}:",
        "```python\n" + "\n".join(tests) + "\n```",
    ]
