"""Reads an answer with math-verify; executed as a program inside the sandbox, where the package `math-verify` must be.

Reads {"response": text, "expected": text} from standard input and writes one JSON line: null where no answer was found,
else whether it equals the expected number. It has no clock of its own: `10**10**10` stops for a kill only.
"""

import json
import logging
import sys


def is_equal(response, expected):
    """Whether the answer of a response equals the expected number by math-verify; None where it finds none."""
    try:
        from math_verify import parse, verify
    except ImportError:
        sys.exit("math-verify is not installed where the sandbox runs; mend: pip install math-verify there")
    # It says at each call that its own clock is off: signals, which a long multiplication does not listen to.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    found = parse(response, parsing_timeout=None)
    return verify(parse(expected, parsing_timeout=None), found, timeout_seconds=None) if found else None


if __name__ == "__main__":
    job = json.load(sys.stdin)
    json.dump(is_equal(job["response"], job["expected"]), sys.stdout)
