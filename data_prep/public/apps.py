"""APPS and TACO: `python -m data_prep.public.apps --out DIR [--version apps|taco] [--max-tests N]`.

Problems of standard input have verifier `stdio`, those that name a function (`fn_name`) `code`. Whether the output
`[x]` of a function means x or [x] differs between problems: the reading that a published solution passes is kept.
Test splits are only for testing.
"""

import json
import sys
from collections.abc import Sequence
from functools import partial
from itertools import islice, product
from typing import Any

from data_prep.sources import hub
from data_prep.sources.codecontests import INSTRUCTION, TRIED, is_short
from data_prep.sources.hub import PublicSet
from data_prep.sources.shown_tests import named_entry_points
from data_prep.sources.source import positive, source_parser
from rewards.analysis.parsing import parse
from rewards.verl_rows import joined

_COLUMNS = ("question", "solutions", "input_output", "starter_code", "difficulty")
VERSIONS = {
    name: PublicSet(name, repository, None, ("train", "test"), _COLUMNS, revision, files=files)
    for name, repository, revision, files in (
        ("apps", "codeparrot/apps", "21e74ddf8de1a21436da12e3e653065c5213e9d1", "{split}.jsonl"),
        ("taco", "BAAI/TACO", "d593ed0a2becbbc952230bb89be09189bf1056dc", "ALL/{split}-*.parquet"),
    )
}
_LICENCES = {"apps": "mit", "taco": "apache-2.0"}


def convert(
    record: dict[str, Any], split: str, index: int, *, version: str = "apps", max_tests: int = 20
) -> dict[str, Any]:
    """The task of a record. Other short solutions and readings of its outputs are its alternatives."""
    if not record["input_output"]:
        raise ValueError("the record has no tests")
    tests = json.loads(record["input_output"])
    cases = list(zip(tests["inputs"], tests["outputs"], strict=True))
    solutions = _solutions(record["solutions"])
    name, starter = tests.get("fn_name"), (record["starter_code"] or "").strip()
    if name is None:
        truths = [_printed(cases, max_tests)]
        asked = INSTRUCTION
    else:
        if not solutions:
            raise ValueError(f"no solution in Python 3 shows how to read the outputs of {name!r}")
        called = f"Solution().{name}" if "class Solution" in starter + solutions[0] else name
        truths = [
            {"tests": reading} | named_entry_points(solutions[0], reading)
            for reading in _readings(called, cases[:max_tests])
        ]
        asked = f"Define `{called.replace('()', '')}`. Answer with the whole program in one Python code block."
    programs: list[str | None] = [*solutions] or [None]
    tries = [{"solution": program, "ground_truth": truth} for program, truth in product(programs, truths)]
    return tries[0] | {
        "id": f"{version}/{split}/{index}",
        "source": version,
        "split": split,
        "role": split,
        "skill": "contest",
        "verifier": "stdio" if name is None else "code",
        "prompt": "\n\n".join(filter(None, [record["question"].strip(), starter, asked])),
        "alternatives": tries[1:],
        "licence": _LICENCES[version],
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


def _readings(called: str, cases: list[Any]) -> list[list[str]]:
    """The tests by each meaning of the outputs: as they are, and without their outer brackets if all have them."""
    readings = [cases]
    if all(isinstance(expected, list) and len(expected) == 1 for _, expected in cases):
        readings = [[(given, expected[0]) for given, expected in cases], cases]
    return [[_call(called, given, expected) for given, expected in reading] for reading in readings]


def _call(called: str, given: Any, expected: Any) -> str:
    """A test of one call; JSON has no tuples, so a tuple equals the list of its items."""
    if not isinstance(given, list):
        raise TypeError(f"arguments must be a list, not {given!r:.80}")
    call = f"{called}({', '.join(map(repr, given))})"
    if not isinstance(expected, list):
        return f"assert {call} == {expected!r}"
    return (
        "def plain(value):\n"
        "    return [plain(item) for item in value] if isinstance(value, list | tuple) else value\n"
        f"assert plain({call}) == {expected!r}"
    )


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
