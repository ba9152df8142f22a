"""HumanEval: `python -m data_prep.sources.humaneval --out DIR [--show-tests none|one|all]`.

For testing only: preflight refuses to train on it.
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from data_prep.sources import hub
from data_prep.sources.hub import PublicSet
from data_prep.sources.source import ShowTests, add_show_tests, shown_lines, shown_tests, source_parser
from rewards.verl_rows import human_eval_truth

PUBLIC = PublicSet(
    "humaneval",
    "openai/openai_humaneval",
    None,
    ("test",),
    ("task_id", "prompt", "canonical_solution", "test", "entry_point"),
    "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
    "mit",
)
_INSTRUCTION = "Complete this function. Answer with the whole program, imports included, in one Python code block."


def convert(record: dict[str, Any], split: str, index: int, *, show_tests: ShowTests = "none") -> dict[str, Any]:
    """The task of a record; the prompt has the examples of its docstring with any `show_tests`."""
    solution = record["prompt"] + record["canonical_solution"]
    truth = human_eval_truth(record["prompt"], record["test"], record["entry_point"], record["canonical_solution"])
    visible = shown_tests(truth["tests"], show_tests)
    return {
        "id": f"humaneval/{record['task_id'].removeprefix('HumanEval/')}",
        "source": "humaneval",
        "split": split,
        "role": "test",
        "skill": "write",
        "verifier": "code",
        "prompt": "\n".join([_INSTRUCTION, f"```python\n{record['prompt'].strip()}\n```", *shown_lines(visible)]),
        "ground_truth": truth | {"visible": len(visible)},
        "solution": solution,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("humaneval", __doc__)
    hub.add_options(parser, PUBLIC.splits)
    add_show_tests(parser, default="none")
    options = parser.parse_args(arguments)
    converted = partial(convert, show_tests=options.show_tests)
    return hub.make(PUBLIC, options, converted, "code")


if __name__ == "__main__":
    sys.exit(main())
