"""Makes GSM8K: `python -m data_prep.gsm8k --out DIR`. Ground truth of verifier `gsm8k`: {"answer": "42"}."""

import re
import sys
from collections.abc import Sequence
from typing import Any

from data_prep import hub
from data_prep.hub import PublicSet
from data_prep.source import run, source_parser

PUBLIC = PublicSet("gsm8k", "openai/gsm8k", "main", ("train", "test"), ("question", "answer"))
INSTRUCTION = 'Let\'s think step by step and put the final answer after "####".'

_CALCULATION = re.compile(r"<<[^<>]*>>")


def convert(record: dict[str, Any], split: str, index: int) -> dict[str, Any]:
    """The task of a record; the calculator's notes (`<<3*4=12>>`) are left out of its solution."""
    solution = _CALCULATION.sub("", record["answer"]).strip()
    _, mark, answer = solution.rpartition("####")
    if not mark or not answer.strip():
        raise ValueError("the answer has no number after ####")
    return {
        "id": f"gsm8k/{split}/{index}",
        "source": "gsm8k",
        "split": split,
        "role": "train" if split == "train" else "test",
        "skill": "arithmetic",
        "verifier": "gsm8k",
        "prompt": f"{record['question'].strip()} {INSTRUCTION}",
        "ground_truth": {"answer": answer.strip().replace(",", "")},
        "solution": solution,
        "licence": "mit",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("gsm8k", __doc__)
    hub.add_options(parser, PUBLIC.splits)
    options = parser.parse_args(arguments)
    return run("gsm8k", options, ("gsm8k",), lambda: hub.drafts(PUBLIC, options, convert))


if __name__ == "__main__":
    sys.exit(main())
