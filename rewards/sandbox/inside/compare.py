"""Comparison of answers with expected answers. Pure; used by the judge, the worker and the SandboxFusion fallback.

Printed output: lines are compared in order; trailing white space and trailing empty lines are ignored. Lines that
differ as text are compared token by token, so leading and inner blanks are ignored too, unless the case is about
layout. A token that is an integer in the expected text must be that number (`12.0` and `1.2e1` are 12; `012` is
different text); a token with a fraction or an exponent may differ by a relative 1e-6 (absolute 1e-9 near zero).
Infinity equals only infinity, NaN only NaN. `True`, `False` and `None` equal `true`, `false`, `null`.

Returned values: numbers follow the same rules, by the type of the expected value; `True`/`False`/`None` equal only
themselves (so `1` is not `True`); lists and tuples are interchangeable because JSON has only lists; sets and dicts
compare by content; a string equals only the same string.

Every comparison takes time linear in the size of both sides: numbers are compared as digits, never converted whole.
"""

from __future__ import annotations

import math
import re
from typing import Any

RELATIVE = 1e-6
ABSOLUTE = 1e-9
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}
# Possessive throughout: a token that is not a number fails after one pass.
_NUMBER = re.compile(r"([+-]?)(?:([0-9]++)(?:\.([0-9]*+))?+|\.([0-9]++))(?:[eE]([+-]?[0-9]++))?+")
_SPECIAL = {"inf": "inf", "infinity": "inf", "nan": "nan"}
_BLANKS = re.compile(r"\s++")
_FLOAT_DIGITS, _EXPONENT_DIGITS = 40, 9

Number = tuple[str, str, int]
"""A decimal number in canonical form: sign, digits without zeros at either end, exponent of the last digit."""


def same_output(actual: str, expected: str, *, layout: bool = False) -> bool:
    """Whether printed text matches the expected text, by the rules at the top of this file.

    `layout`: leading and inner blanks must match.
    """
    actual_lines, expected_lines = _lines(actual), _lines(expected)
    if len(actual_lines) != len(expected_lines):
        return False
    return all(a == b or _same_line(a, b, layout) for a, b in zip(actual_lines, expected_lines, strict=True))


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_line(actual: str, expected: str, layout: bool) -> bool:
    if layout and _BLANKS.findall(actual) != _BLANKS.findall(expected):
        return False
    actual_tokens, expected_tokens = actual.split(), expected.split()
    if len(actual_tokens) != len(expected_tokens):
        return False
    return all(_same_token(a, b) for a, b in zip(actual_tokens, expected_tokens, strict=True))


def _same_token(actual: str, expected: str) -> bool:
    if _JSON_WORDS.get(actual, actual) == _JSON_WORDS.get(expected, expected):
        return True
    wanted, given = number(expected), number(actual)
    if wanted is None or given is None:
        return wanted is given and _special(actual) == _special(expected) is not None
    if any(mark in expected for mark in ".eE"):
        return given == wanted or _close(given, wanted)
    # Leading zeros matter where a number is a name: 007, 0011, 09:05.
    return given == wanted and not (_is_padded(actual) or _is_padded(expected))


def _is_padded(text: str) -> bool:
    digits = text.lstrip("+-")
    return text.startswith("+") or (digits[:1] == "0" and digits[1:2].isdigit())


def number(text: str) -> Number | None:
    """Parse a decimal number; None if the text is not one or its exponent has more than nine digits."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    sign, whole, fraction, only_fraction, written = match.groups()
    exponent = (written or "0").lstrip("+")
    if len(exponent) > _EXPONENT_DIGITS:
        return None
    fraction = fraction or only_fraction or ""
    digits = ((whole or "") + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return ("", "", 0)
    power = int(exponent) - len(fraction) + len(digits) - len(significant)
    return ("-" if sign == "-" else "", significant, power)


def _special(text: str) -> tuple[bool, str] | None:
    word = _SPECIAL.get(text.lstrip("+-").lower())
    return None if word is None else (text.startswith("-") and word == "inf", word)


def _close(given: Number, wanted: Number) -> bool:
    left, right = _as_float(given), _as_float(wanted)
    # Beyond a float's range all numbers look alike: only equal digits count as equal there.
    return math.isfinite(left) and math.isfinite(right) and close(left, right)


def _as_float(value: Number) -> float:
    sign, digits, power = value
    # A float has 17 significant digits; the digits cut off here change at most the last one.
    leading = digits[:_FLOAT_DIGITS]
    return float(f"{sign}{leading or '0'}e{power + len(digits) - len(leading)}")


def close(actual: float, expected: float) -> bool:
    """Whether two floats are equal within the tolerance; NaN equals NaN, since NaN can be an expected answer."""
    if math.isnan(actual) or math.isnan(expected):
        return math.isnan(actual) and math.isnan(expected)
    return math.isclose(actual, expected, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def same_value(actual: Any, expected: Any) -> bool:
    """Whether a returned value (plain data) matches the expected one, by the rules at the top of this file."""
    if isinstance(actual, bool) or isinstance(expected, bool) or actual is None or expected is None:
        return type(actual) is type(expected) and actual == expected
    if isinstance(expected, float) and isinstance(actual, (int, float)):
        return _same_float(actual, expected)
    if isinstance(actual, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(actual) == len(expected) and all(same_value(a, b) for a, b in zip(actual, expected, strict=True))
    if isinstance(actual, dict) and isinstance(expected, dict):
        return _same_mapping(actual, expected)
    # Integers, fractions, strings: Python's equality is exact, also between an int and a float.
    return bool(actual == expected)


def _same_float(actual: float, expected: float) -> bool:
    try:
        return close(float(actual), expected)
    except OverflowError:
        return False


def _same_mapping(actual: dict[Any, Any], expected: dict[Any, Any]) -> bool:
    if len(actual) != len(expected):
        return False
    missing = object()
    by_json_key: dict[str, Any] | None = None
    for key, value in expected.items():
        given = actual.get(key, missing)
        # JSON has only string keys: {"1": 2} in a dataset matches a program's {1: 2}.
        if given is missing and isinstance(key, str):
            if by_json_key is None:
                texts = ((_as_json_key(other), item) for other, item in actual.items())
                by_json_key = {text: item for text, item in texts if text is not None}
            given = by_json_key.get(key, missing)
        if given is missing or not same_value(given, value):
            return False
    return True


def _as_json_key(key: Any) -> str | None:
    if isinstance(key, bool) or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    # Python refuses to print a key of thousands of digits, and no dataset has one.
    return str(key) if isinstance(key, float) or (isinstance(key, int) and key.bit_length() < 1024) else None
