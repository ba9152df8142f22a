"""Verifier `gsm8k`: the final number of a response must equal the expected one, in any notation.

`strict` reads the number after the last `####`, `flexible` the last number; both read the whole response, and an
expression is not a number. Numbers are compared by value (rewards/verifiers/answer_numbers.py).
`math_verify` accepts what `strict` accepts, and passes every other answer to the library math-verify (LaTeX, fractions,
expressions). That runs in the sandbox: it evaluates the answer, and must be killed if that does not terminate.
"""

import inspect
import json
import re
from collections import deque
from functools import cache

from pydantic import BaseModel, ConfigDict, field_validator

from rewards import registry
from rewards.extraction import answer_part
from rewards.settings import JudgeSettings
from rewards.verdict import Verdict
from rewards.verifiers import math_verify_driver
from rewards.verifiers.answer_numbers import begins_operand, is_joined, joins, numbers
from rewards.verifiers.programs import sandbox_at

_MARK = "####"
# Time to import math-verify and sympy on a busy machine, not charged to the answer.
_IMPORT_SECONDS = 10.0
_SCALES = frozenset((
    "hundred", "thousand", "million", "billion", "trillion", "mil", "lakh", "crore", "squared", "cubed", "factorial",
    "minus", "plus", "negative", "doubled", "tripled", "halved", "tens", "hundreds", "thousands", "millions",
    "billions",
))  # fmt: skip
_FRACTIONS = frozenset(("half", "third", "quarter"))
_SUFFIXES = frozenset("kKMB") | {"²", "³"}
_LENGTH_POWER = re.compile(
    r"((?<![A-Za-z])(?:[mcdk]?m|in|ft|yd|mi|units?|feet|inch(?:es)?|met(?:er|re)s?)\}?)(?:[²³]|\^[23]|\^\{[23]\})(?![0-9])"
)
# What a further number may be the object of: `42 in 3 days`, but not `42 or 43`.
_CONTEXT = re.compile(r"[A-Za-z ]*+(?:(?<=[ ](?:in|of)[ ])|(?<=[ ](?:for|per)[ ]))[0-9]++")
_CHOICE = re.compile(r"(?<![A-Za-z])(?:or|and|to|nor|either|not|maybe|vs|versus)(?![A-Za-z])", re.IGNORECASE)
_OR = re.compile(r"(?<![A-Za-z])or[ ]++", re.IGNORECASE)
# Powers of powers, exponents of five digits and large or nested factorials: evaluating them may take all the time.
_TOWER = re.compile(r"(?:\^|\*\*)[{(\s]*+[+-]?[0-9.]++[}\s]*+(?:\^|\*\*)")
_EXPONENT = re.compile(r"(?:\^|\*\*)[{(\s]*+[+-]?[0-9]{5}")
_FACTORIAL = re.compile(r"[0-9]{5}[})]*+!(?=[})$*^/]|$)|![})]++!|[0-9})]!!!!")
_SPACE = re.compile(r"[ \t]*+[*+]*+\\?+")


class Gsm8kTruth(BaseModel):
    """The expected number, as the data set writes it after `####`."""

    model_config = ConfigDict(extra="forbid")
    answer: str

    @field_validator("answer")
    @classmethod
    def _is_a_number(cls, answer: str) -> str:
        text = answer.strip()
        number = next(numbers(text), None)
        if number is None or (number.start, number.end) != (0, len(text)):
            raise ValueError(f"the answer must be a number, not {answer!r}")
        return number.value


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Compare the number of a response with the expected one."""
    assert isinstance(truth, Gsm8kTruth)
    text = answer_part(response)
    if text is None:
        return Verdict.failed("extract")
    number = last_number(text) if settings.gsm8k_extraction == "flexible" else marked_number(text)
    if settings.gsm8k_extraction == "math_verify" and number != truth.answer:
        if not any(character.isdigit() for character in text):
            return Verdict.failed("extract")
        return await by_math_verify(text, truth.answer, settings)
    return Verdict.failed("extract") if number is None else Verdict.of_ratio(float(number == truth.answer))


async def by_math_verify(response: str, expected: str, settings: JudgeSettings) -> Verdict:
    """The verdict by math-verify; RuntimeError if it is not installed. Huge powers and factorials are no answer."""
    if any(huge.search(response) for huge in (_TOWER, _EXPONENT, _FACTORIAL)):
        return Verdict.failed("extract")
    run = await sandbox_at(settings.sandbox_url, settings.sandbox_isolation).run(
        _driver(),
        stdin=json.dumps({"response": response, "expected": expected}),
        timeout=settings.timeout + _IMPORT_SECONDS,
        memory_mb=settings.memory_mb,
    )
    if run.outcome == "timeout":
        return Verdict.failed("timeout")
    if run.outcome != "passed" and "math-verify is not installed" in run.stderr:
        raise RuntimeError(run.stderr.strip())
    # Some answers make math-verify raise or run out of memory: they count as no answer.
    equal = json.loads(run.stdout) if run.outcome == "passed" else None
    return Verdict.failed("extract") if equal is None else Verdict.of_ratio(float(equal))


@cache
def _driver() -> str:
    return inspect.getsource(math_verify_driver)


def marked_number(text: str) -> str | None:
    """The number right after the last `####`, in canonical form; None if an expression or other text is there.

    A unit may follow on the same line, but nothing that changes the value.
    """
    start = text.rfind(_MARK)
    if start < 0:
        return None
    blank = _SPACE.match(text, start + len(_MARK))
    assert blank is not None
    number = next(numbers(text, blank.end()), None)
    if number is None or number.start > blank.end() or is_joined(text, number.end):
        return None
    return None if _is_scaled(text[number.end :].partition("\n")[0]) else number.value


def _is_scaled(rest: str) -> bool:
    """Whether the rest of the line changes a number's value: an alternative, `k`, `thousand`, `squared`, `and a half`.

    A power of a unit of length does not, nor does one number after `in`, `of`, `for` or `per`.
    """
    rest = _LENGTH_POWER.sub(r"\1", rest)
    if any(begins_operand(rest, found.end()) for found in _OR.finditer(rest)):
        return True
    context = _CONTEXT.match(rest)
    place = context.end() if context and not _CHOICE.search(context[0]) else 0
    if any(character.isnumeric() for character in rest[place:]) or (place and is_joined(rest, place)):
        return True
    words = rest.lower().split()
    parts = rest.lower().replace("-", " ").split()
    return (
        rest[:1] in _SUFFIXES or words[:1] == ["k"] or not _SCALES.isdisjoint(parts) or not _FRACTIONS.isdisjoint(words)
    )


def last_number(text: str) -> str | None:
    """The last number of a text, in canonical form; None if it is the right operand of an operator (`84/2`) or goes on
    in digits of another script (`4２`).
    """
    for line in reversed(text.splitlines()):
        if last := deque(numbers(line), maxlen=1):
            goes_on = line[last[0].end : last[0].end + 1].isdecimal()
            return None if goes_on or joins(line, last[0].start) else last[0].value
    return None


registry.register(registry.Verifier("gsm8k", Gsm8kTruth, judge))
