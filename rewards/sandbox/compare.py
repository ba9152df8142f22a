"""When an answer counts as the expected one. Pure; used by the judge, the worker and the SandboxFusion fallback.

Printed output: lines are compared in order, white space at line ends and empty lines at the end do not count. Where the
texts of two lines differ, they are compared token by token, and tokens that are both decimal numbers with a fraction or
an exponent may differ by a relative 1e-6 (absolute 1e-9 near zero). `True`, `False` and `None` equal JSON's `true`,
`false` and `null`.

Returned values: numbers as Python compares them, floats with the same tolerance, `True`/`False`/`None` only with
themselves (so `1` is not `True`), lists and tuples are interchangeable because JSON has lists only, sets and dicts by
content; a string is equal only to the same string.
"""

from __future__ import annotations

import math
import re
from typing import Any

RELATIVE = 1e-6
ABSOLUTE = 1e-9
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan|infinity)", re.IGNORECASE)


def same_output(actual: str, expected: str) -> bool:
    """Whether printed text answers the expected text, by the rules at the top of this file."""
    actual_lines, expected_lines = _lines(actual), _lines(expected)
    if len(actual_lines) != len(expected_lines):
        return False
    return all(a == b or _same_tokens(a, b) for a, b in zip(actual_lines, expected_lines, strict=True))


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_tokens(actual: str, expected: str) -> bool:
    actual_tokens, expected_tokens = actual.split(), expected.split()
    if len(actual_tokens) != len(expected_tokens):
        return False
    return all(_same_token(a, b) for a, b in zip(actual_tokens, expected_tokens, strict=True))


def _same_token(actual: str, expected: str) -> bool:
    if _JSON_WORDS.get(actual, actual) == _JSON_WORDS.get(expected, expected):
        return True
    return _same_number(actual, expected)


def _same_number(actual: str, expected: str) -> bool:
    # Two whole numbers that differ as text are different answers (ids, counts): the tolerance is for fractions.
    if not _is_fractional(actual) and not _is_fractional(expected):
        return False
    if not (_NUMBER.fullmatch(actual) and _NUMBER.fullmatch(expected)):
        return False
    return close(float(actual), float(expected))


def _is_fractional(token: str) -> bool:
    return any(mark in token for mark in ".eEnN")


def close(actual: float, expected: float) -> bool:
    """Whether two floats are equal within the tolerance; NaN equals NaN here, as an expected answer."""
    if math.isnan(actual) or math.isnan(expected):
        return math.isnan(actual) and math.isnan(expected)
    return math.isclose(actual, expected, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def same_value(actual: Any, expected: Any) -> bool:
    """Whether a returned value (plain data) answers the expected one, by the rules at the top of this file."""
    if isinstance(actual, bool) or isinstance(expected, bool) or actual is None or expected is None:
        return type(actual) is type(expected) and actual == expected
    if isinstance(actual, (int, float)) and isinstance(expected, (int, float)):
        return _same_numeric(actual, expected)
    if isinstance(actual, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(actual) == len(expected) and all(same_value(a, b) for a, b in zip(actual, expected, strict=True))
    if isinstance(actual, dict) and isinstance(expected, dict):
        return _same_mapping(actual, expected)
    return bool(actual == expected)


def _same_numeric(actual: float, expected: float) -> bool:
    if isinstance(actual, int) and isinstance(expected, int):
        return actual == expected
    try:
        return close(float(actual), float(expected))
    except OverflowError:
        return False


def _same_mapping(actual: dict[Any, Any], expected: dict[Any, Any]) -> bool:
    if len(actual) != len(expected):
        return False
    missing = object()
    for key, value in expected.items():
        found = actual.get(key, missing)
        # JSON has string keys only: {"1": 2} in a dataset answers {1: 2} of a program.
        if found is missing and isinstance(key, str):
            found = next((item for other, item in actual.items() if _as_json_key(other) == key), missing)
        if found is missing or not same_value(found, value):
            return False
    return True


def _as_json_key(key: Any) -> str | None:
    if isinstance(key, bool) or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    return str(key) if isinstance(key, (int, float)) else None
