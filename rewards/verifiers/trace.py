"""Verifier `trace`: the response must be the value that a program returns, as a Python literal."""

import ast

from pydantic import BaseModel, field_validator

from rewards import registry
from rewards.analysis.parsing import typed
from rewards.extraction import extract_last_line
from rewards.settings import JudgeSettings
from rewards.verdict import Verdict


class TraceTruth(BaseModel):
    """The expected value, as a Python literal from `repr`."""

    expected: str

    @field_validator("expected")
    @classmethod
    def _is_a_literal(cls, text: str) -> str:
        ast.literal_eval(text)
        return text


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Compare the literal in the response's last line with the expected value, types included.

    For a tuple or list of the right length the pass ratio is the share of right elements, since each is the trace of
    a part of the program; any other value is right or wrong as a whole.
    """
    assert isinstance(truth, TraceTruth)
    line = extract_last_line(response)
    if line is None:
        return Verdict.failed("extract")
    try:
        answer = ast.literal_eval(line)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return Verdict.failed("syntax")
    ratio = _share_right(answer, ast.literal_eval(truth.expected))
    return Verdict.of_ratio(ratio, partial_credit=settings.partial_credit)


def _share_right(answer: object, expected: object) -> float:
    if not (expected and isinstance(expected, tuple | list) and isinstance(answer, tuple | list)):
        return float(same_literal(answer, expected))
    if type(answer) is not type(expected) or len(answer) != len(expected):
        return 0.0
    return sum(map(same_literal, answer, expected)) / len(expected)


def same_literal(left: object, right: object) -> bool:
    """Equality that distinguishes 1, 1.0 and True, also inside containers, and ignores the order of dicts and sets."""
    if type(left) is not type(right):
        return False
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(same_literal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return typed(left) == typed(right) and all(same_literal(left[key], right[key]) for key in left)
    if isinstance(left, set) and isinstance(right, set):
        return typed(left) == typed(right)
    if isinstance(left, float):
        return repr(left) == repr(right)  # distinguishes -0.0 from 0.0
    return left == right


registry.register(registry.Verifier("trace", TraceTruth, judge))
