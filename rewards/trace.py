"""Verifier `trace`: the response must be the value that a program returns, as a Python literal."""

import ast

from pydantic import BaseModel, field_validator

from rewards import registry
from rewards.extraction import extract_last_line
from rewards.registry import JudgeSettings
from rewards.verdict import Verdict


class TraceTruth(BaseModel):
    """The value expected, written as a Python literal, as `repr` gives it."""

    expected: str

    @field_validator("expected")
    @classmethod
    def _is_a_literal(cls, text: str) -> str:
        ast.literal_eval(text)
        return text


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Compares the literal in the response's last line with the expected value, type for type.

    For a tuple or list of the right length the pass ratio is the share of right elements, since each is the trace of
    a part of the program; any other value is right or wrong as a whole.
    """
    assert isinstance(truth, TraceTruth)
    line = extract_last_line(response)
    if line is None:
        return Verdict.failed("extract")
    try:
        answer = ast.literal_eval(line)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return Verdict.failed("syntax")
    return Verdict.of_ratio(_share_right(answer, ast.literal_eval(truth.expected)), partial_credit=settings.partial_credit)


def _share_right(answer: object, expected: object) -> float:
    if isinstance(expected, (tuple, list)) and type(answer) is type(expected) and len(answer) == len(expected) > 0:
        return sum(map(_same, answer, expected)) / len(expected)
    return float(_same(answer, expected))


def _same(answer: object, expected: object) -> bool:
    """Equality that tells 1 from True and from 1.0, inside containers too."""
    return answer == expected and repr(answer) == repr(expected)


registry.register(registry.Verifier("trace", TraceTruth, judge))
