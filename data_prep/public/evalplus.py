"""EvalPlus: `python -m data_prep.public.evalplus --out DIR [--version humaneval|mbpp] [--show-tests none|one]`.

HumanEval+ and MBPP+, published in the form of the sets that they extend, for testing only. All inputs of a problem are
one test. Test code that accepts wrong programs is repaired to what EvalPlus's own evaluator checks.
"""

import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from data_prep.sources import hub, humaneval, mbpp
from data_prep.sources.hub import PublicSet
from data_prep.sources.source import ShowTests, source_parser

VERSIONS = {
    name: PublicSet(f"{name}plus", f"evalplus/{name}plus", None, ("test",), columns, revision, "apache-2.0")
    for name, columns, revision in (
        ("humaneval", humaneval.PUBLIC.columns, "d32357cf319e50e9c8d8dab5ea876c72b0fd321b"),
        ("mbpp", (*mbpp.VERSIONS["sanitized"].columns, "test"), "b2d74c91837c3f2a20c1299ae98133cbe7cfa077"),
    )
}

# numpy's broadcasts: by it any number equals [], and 1.0 equals [1.0, 1.0]. It also takes a second to import.
_ALLCLOSE = re.compile(r"(?:assert )?np\.(?:testing\.assert_)?allclose\([^()]*\)")
_CLOSE = """
def close(out, exp, atol):
    if isinstance(exp, (list, tuple)):
        return type(out) == type(exp) and len(out) == len(exp) and all(map(close, out, exp, [atol] * len(exp)))
    return abs(out - exp) <= atol + 1e-07 * abs(exp)

"""
_NUMPY = re.compile(r"^(?:import numpy as np| +if isinstance\(x, np\.ndarray\):\n +return .*)\n", re.MULTILINE)
# HumanEval/32 calls its oracle with the arguments swapped.
_SWAPPED, _IN_ORDER = "_poly(*candidate(*inp), inp)", "abs(_poly(*inp, candidate(*inp)))"
# Where the helper compares but does not assert.
_UNUSED = re.compile(r"^( +exact_match = exp == \(out is not None\))\n(?!.*\n? +assert)", re.MULTILINE)
_CALL = re.compile(r"^check\(.*", re.MULTILINE)


def repaired(test: str) -> str:
    """The published test code, with comparisons that reject values of another type or length, and without numpy."""
    text = _ALLCLOSE.sub("assert close(out, exp, atol)", _NUMPY.sub("", test)).replace(_SWAPPED, _IN_ORDER)
    return _CLOSE + _CALL.sub("", _UNUSED.sub(r"\1\n    assert exact_match\n", text))


def convert(record: dict[str, Any], split: str, index: int, *, show_tests: ShowTests | None = None) -> dict[str, Any]:
    """The task of a record of either set. show_tests: as in the set that it extends, whose default is the same."""
    test = repaired(record["test"])
    if "entry_point" in record:
        fields = humaneval.convert(record | {"test": test}, split, index, show_tests=show_tests or "none")
    else:
        tests = [*record["test_list"], test]
        fields = mbpp.convert(record | {"test_list": tests}, split, index, show_tests=show_tests or "one")
    source, number = fields["source"] + "plus", fields["id"].partition("/")[2]
    renamed = {"id": f"{source}/{number}", "source": source, "split": split}
    return fields | renamed | {"role": "test"}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("public.evalplus", __doc__)
    hub.add_options(parser, ("test",))
    parser.add_argument("--version", choices=VERSIONS, default="mbpp")
    parser.add_argument("--show-tests", choices=("none", "one"), help="tests that the prompt shows")
    options = parser.parse_args(arguments)
    converted = partial(convert, show_tests=options.show_tests)
    return hub.make(VERSIONS[options.version], options, converted, "code", module="public.evalplus")


if __name__ == "__main__":
    sys.exit(main())
