"""APPS and TACO: `python -m data_prep.public.apps --out DIR [--version apps|taco] [--max-tests N]`.

Problems of standard input have verifier `stdio`, those that name a function (`fn_name`) `calls`, which knows LeetCode's
usual names and takes both readings of outputs that are all `[x]`: x, and a list with x. Test splits are only for tests.
"""

import json
import sys
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

from data_prep.sources import hub
from data_prep.sources.codecontests import INSTRUCTION, TRIED, is_short
from data_prep.sources.hub import PublicSet
from data_prep.sources.source import positive, source_parser
from rewards.analysis.parsing import parse
from rewards.verl_rows import joined, row_of

_COLUMNS = ("question", "solutions", "input_output", "starter_code", "difficulty")
VERSIONS = {
    name: PublicSet(name, repository, None, ("train", "test"), _COLUMNS, revision, licence, files=files)
    for name, repository, revision, licence, files in (
        ("apps", "codeparrot/apps", "21e74ddf8de1a21436da12e3e653065c5213e9d1", "mit", "{split}.jsonl"),
        ("taco", "BAAI/TACO", "d593ed0a2becbbc952230bb89be09189bf1056dc", "apache-2.0", "ALL/{split}-*.parquet"),
    )
}


def convert(
    record: dict[str, Any], split: str, index: int, *, version: str = "apps", max_tests: int = 20
) -> dict[str, Any]:
    """The task of a record. Other short solutions are its alternatives."""
    if not record["input_output"]:
        raise ValueError("the record has no tests")
    tests = json.loads(record["input_output"])
    cases = list(zip(tests["inputs"], tests["outputs"], strict=True))
    solutions = _solutions(record["solutions"])
    name, starter = tests.get("fn_name"), (record["starter_code"] or "").strip()
    if name is None:
        verifier, truth, asked = "stdio", _printed(cases, max_tests), INSTRUCTION
    else:
        verifier, truth = "calls", _called(version, name, cases[:max_tests])
        called = f"Solution.{name}" if "class Solution" in starter + "".join(solutions[:1]) else name
        asked = f"Define `{called}`. Answer with the whole program in one Python code block."
    programs: list[str | None] = [*solutions] or [None]
    tries = [{"solution": program, "ground_truth": truth} for program in programs]
    return tries[0] | {
        "id": f"{version}/{split}/{index}",
        "source": version,
        "split": split,
        "role": split,
        "skill": "contest",
        "verifier": verifier,
        "prompt": "\n\n".join(filter(None, [record["question"].strip(), starter, asked])),
        "alternatives": tries[1:],
        "notes": {"difficulty": record["difficulty"] or "unknown"},
    }


def _solutions(text: str) -> list[str]:
    """The shortest programs in Python 3; many are in Python 2."""
    programs = sorted(set(json.loads(text or "[]")), key=lambda program: (len(program), program))
    return list(islice((program for program in programs if parse(program)), TRIED))


def _printed(cases: list[Any], limit: int) -> dict[str, Any]:
    """The ground truth of a problem of standard input, whose texts may be lists of lines."""
    lines = [{"stdin": joined(given), "expected": joined(expected)} for given, expected in cases]
    if not (short := list(filter(is_short, lines))[:limit]):
        raise ValueError("no test is short enough")
    return {"cases": short}


def _called(version: str, name: str, cases: list[Any]) -> dict[str, Any]:
    """The ground truth of a problem that names a function."""
    tests = {"fn_name": name, "inputs": [given for given, _ in cases], "outputs": [out for _, out in cases]}
    try:
        _, truth = row_of(version, json.dumps(tests))
    except json.JSONDecodeError as error:
        raise ValueError(f"arguments of {name!r} are neither a list nor JSON") from error
    read: dict[str, Any] = json.loads(truth)
    return read


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("public.apps", __doc__)
    hub.add_options(parser, ("train", "test"))
    parser.add_argument("--version", choices=VERSIONS, default="apps")
    parser.add_argument("--max-tests", type=positive, default=20, help="maximum number of tests per problem")
    options = parser.parse_args(arguments)
    converted = partial(convert, version=options.version, max_tests=options.max_tests)
    return hub.make(VERSIONS[options.version], options, converted, "stdio", module="public.apps")


if __name__ == "__main__":
    sys.exit(main())
