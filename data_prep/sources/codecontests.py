"""CodeContests: `python -m data_prep.sources.codecontests --out DIR [--max-tests N]`; its test split only for testing.

Ground truth of verifier `stdio`: {"cases": [{"stdin": text, "expected": text}, ...]}: published tests first, then
private ones, then generated ones, at most --max-tests. The description contains the published ones, so they are
visible. If an expected output has a line that begins with spaces or has several in a row, and the solution prints them
exactly so, the task is about layout and its ground truth has `layout` set.
"""

import asyncio
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from data_prep.sources import hub
from data_prep.sources.hub import PublicSet
from data_prep.sources.source import Draft, Refusal, judge_of, positive, source_parser
from rewards import compute_score
from rewards.settings import JudgeSettings

_TESTS = ("public_tests", "private_tests", "generated_tests")
PUBLIC = PublicSet(
    "codecontests",
    "deepmind/code_contests",
    None,
    ("train", "valid", "test"),
    ("name", "description", *_TESTS, "solutions"),
    "802411c3010cb00d1b05bad57ca77365a3c699d6",
    "cc-by-4.0",
)
_ROLES = {"train": "train", "valid": "dev", "test": "test"}
INSTRUCTION = (
    "Write a Python 3 program that reads standard input and writes standard output. "
    "Answer with the whole program in one Python code block."
)
_PYTHON3 = 3
_MAX_CASE_CHARACTERS = 65_536
_LAID_OUT = re.compile(r"^[ \t]++\S|\S(?:\t|[ \t]{2})[ \t]*+\S", re.MULTILINE)
TRIED = 5


def convert(record: dict[str, Any], split: str, index: int, *, max_tests: int = 20) -> dict[str, Any]:
    """The task of a record. Its solution is the shortest one in Python 3, if any, and its alternatives are the next
    ones: some solutions published as correct fail here.
    """
    published, others = (list(filter(is_short, _cases(record, kinds))) for kinds in (_TESTS[:1], _TESTS[1:]))
    visible = min(len(published), max_tests)
    cases = [*published, *others][:max_tests]
    if not cases:
        raise ValueError(f"no test of at most {_MAX_CASE_CHARACTERS} characters")
    programs = zip(record["solutions"]["language"], record["solutions"]["solution"], strict=True)
    in_python = {program for language, program in programs if language == _PYTHON3}
    solutions = sorted(in_python, key=lambda program: (len(program), program))
    return {
        "id": f"codecontests/{split}/{record['name']}",
        "source": "codecontests",
        "split": split,
        "role": _ROLES[split],
        "skill": "contest",
        "verifier": "stdio",
        "prompt": f"{record['description'].strip()}\n\n{INSTRUCTION}",
        "ground_truth": {"cases": cases, "visible": visible},
        "solution": next(iter(solutions), None),
        "alternatives": solutions[1:TRIED],
    }


def is_short(case: dict[str, str]) -> bool:
    """Whether a case is short enough to be kept."""
    return sum(map(len, case.values())) <= _MAX_CASE_CHARACTERS


def _cases(record: dict[str, Any], kinds: Sequence[str]) -> Iterator[dict[str, str]]:
    for name in kinds:
        tests = record[name] or {"input": [], "output": []}
        for given, expected in zip(tests["input"], tests["output"], strict=True):
            yield {"stdin": given, "expected": expected}


def with_layout(drafts: Iterable[Draft], judge: JudgeSettings) -> Iterator[Draft]:
    """The drafts, with `layout` set if an expected output has a layout that a solution reproduces."""
    for draft in drafts:
        if isinstance(draft, Refusal) or not is_laid_out(draft["ground_truth"]["cases"]):
            yield draft
            continue
        truth = draft["ground_truth"] | {"layout": True}
        solutions = [draft["solution"], *draft["alternatives"]] if draft["solution"] is not None else []
        passing = next((solution for solution in solutions if asyncio.run(_passes(solution, truth, judge))), None)
        yield draft if passing is None else draft | {"ground_truth": truth, "solution": passing}


def is_laid_out(cases: Sequence[dict[str, str]]) -> bool:
    """Whether a line of an expected output begins with spaces or has several of them in a row."""
    # `str`, as validation refuses a draft with another type only later.
    return any(_LAID_OUT.search(str(case["expected"])) for case in cases)


async def _passes(solution: str, truth: dict[str, Any], judge: JudgeSettings) -> bool:
    return (await compute_score("stdio", solution, json.dumps(truth), **vars(judge)))["error"] == "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("codecontests", __doc__)
    hub.add_options(parser, PUBLIC.splits)
    parser.add_argument("--max-tests", type=positive, default=20, help="maximum number of tests per problem")
    options = parser.parse_args(arguments)
    converted = partial(convert, max_tests=options.max_tests)
    return hub.make(PUBLIC, options, converted, "stdio", refine=lambda made: with_layout(made, judge_of(options)))


if __name__ == "__main__":
    sys.exit(main())
