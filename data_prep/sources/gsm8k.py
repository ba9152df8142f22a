"""GSM8K: `python -m data_prep.sources.gsm8k --out DIR`. Ground truth of verifier `gsm8k`: {"answer": "42"}.

A twentieth of the published training problems, by the hash of the question, is held out as `dev` for validation.
"""

import re
import sys
from collections.abc import Sequence
from typing import Any

from data_prep.sources import hub
from data_prep.sources.hub import PublicSet
from data_prep.sources.source import source_parser
from data_prep.splits import split_by_hash

PUBLIC = PublicSet(
    "gsm8k",
    "openai/gsm8k",
    "main",
    ("train", "test"),
    ("question", "answer"),
    "cc7b047b6e5bb11b4f1af84efc572db110a51b3c",
    "mit",
)
_SHARES = {"dev": 5, "train": 95}
INSTRUCTION = 'Let\'s think step by step and put the final answer after "####".'

_CALCULATION = re.compile(r"<<[^<>]*>>")


def parts(split: str, records: Sequence[Any]) -> dict[str, list[int]]:
    """The record numbers of train, dev and test; invalid records go to train, where they are refused."""
    if split == "test":
        return {"test": list(range(len(records)))}
    numbers: dict[str, list[int]] = {"train": [], "dev": []}
    for number, record in enumerate(records):
        question = record.get("question") if isinstance(record, dict) else None
        part = split_by_hash(question.strip(), _SHARES) if isinstance(question, str) else "train"
        numbers[part].append(number)
    return numbers


def convert(record: dict[str, Any], split: str, index: int) -> dict[str, Any]:
    """The task of a record; its solution is without the calculator annotations (`<<3*4=12>>`)."""
    solution = _CALCULATION.sub("", record["answer"]).strip()
    _, mark, answer = solution.rpartition("####")
    if not mark or not answer.strip():
        raise ValueError("the answer has no number after ####")
    return {
        "id": f"gsm8k/{'test' if split == 'test' else 'train'}/{index}",
        "source": "gsm8k",
        "split": split,
        "role": split,
        "skill": "arithmetic",
        "verifier": "gsm8k",
        "prompt": f"{record['question'].strip()} {INSTRUCTION}",
        "ground_truth": {"answer": answer.strip().replace(",", "")},
        "solution": solution,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("gsm8k", __doc__)
    hub.add_options(parser, PUBLIC.splits)
    options = parser.parse_args(arguments)
    return hub.make(PUBLIC, options, convert, "gsm8k", parts=parts)


if __name__ == "__main__":
    sys.exit(main())
