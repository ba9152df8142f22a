"""Verifier `gsm8k`: the final number of a response equals the expected one, whichever way it is written.

`strict` reads the number after the last `####` that a number follows, `flexible` the last number; both read the whole
response. Numbers are equal by value: 42, 42.0, 42., +42, $42 and 1,234 for 1234; commas must set off thousands.
`math_verify` takes what `strict` finds right, and leaves every other answer to the library math-verify (LaTeX,
fractions, expressions), in the sandbox: it computes what the answer says, and must be killed where that never ends.
"""

import inspect
import json
import re
from collections import deque
from functools import cache

from pydantic import BaseModel, ConfigDict, field_validator

from rewards import math_verify_driver, registry
from rewards.execution import sandbox_at
from rewards.extraction import MAX_ANSWER_CHARACTERS
from rewards.registry import JudgeSettings
from rewards.verdict import Verdict

# A sign counts where nothing that could be subtracted from stands before it; `3-5` ends in 5.
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)(?:\.[0-9]++)?|\.[0-9]++"
_NUMBER = re.compile(rf"((?<![0-9A-Za-z)])[-−])?\$?((?<![0-9A-Za-z)])[-−])?({_DIGITS})")
_MARK = "####"
# Of math-verify and sympy, on a busy machine; it is the program's first act and no fault of the answer.
_IMPORT_SECONDS = 10.0
_SPACE = re.compile(r"[ \t]*+[*+]*")


class Gsm8kTruth(BaseModel):
    """The number expected, as the data set writes it after `####`."""

    model_config = ConfigDict(extra="forbid")
    answer: str

    @field_validator("answer")
    @classmethod
    def _is_a_number(cls, answer: str) -> str:
        found = _NUMBER.fullmatch(answer.strip())
        if not found:
            raise ValueError(f"the answer must be a number, not {answer!r}")
        return _canonical(found)


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Compares the number of a response with the expected one."""
    assert isinstance(truth, Gsm8kTruth)
    if len(response) > MAX_ANSWER_CHARACTERS:
        return Verdict.failed("extract")
    number = last_number(response) if settings.gsm8k_extraction == "flexible" else marked_number(response)
    if settings.gsm8k_extraction == "math_verify" and number != truth.answer:
        return await _by_math_verify(response, truth.answer, settings)
    return Verdict.failed("extract") if number is None else Verdict.of_ratio(float(number == truth.answer))


async def _by_math_verify(response: str, expected: str, settings: JudgeSettings) -> Verdict:
    """What math-verify says; RuntimeError when it isn't there."""
    if not any(character.isdigit() for character in response):
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
    # It raises, or runs out of memory, over answers of its own choosing: such an answer is none.
    equal = json.loads(run.stdout) if run.outcome == "passed" else None
    return Verdict.failed("extract") if equal is None else Verdict.of_ratio(float(equal))


@cache
def _driver() -> str:
    return inspect.getsource(math_verify_driver)


def marked_number(text: str) -> str | None:
    """The number right after the last `####` that has one, in canonical form."""
    end = len(text)
    while (start := text.rfind(_MARK, 0, end)) >= 0:
        blank = _SPACE.match(text, start + len(_MARK))
        assert blank is not None
        if found := _NUMBER.match(text, blank.end()):
            return _canonical(found)
        end = start + len(_MARK) - 1
    return None


def last_number(text: str) -> str | None:
    """The last number of a text, in canonical form."""
    for line in reversed(text.splitlines()):
        if found := deque(_NUMBER.finditer(line), maxlen=1):
            return _canonical(found[0])
    return None


def _canonical(number: re.Match[str]) -> str:
    """The one way of writing a value: no sign but a minus, no commas, no zeros at either end."""
    whole, _, fraction = number[3].replace(",", "").partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    digits = f"{whole}.{fraction}" if fraction else whole
    negative = bool(number[1]) != bool(number[2]) and digits != "0"
    return f"-{digits}" if negative else digits


registry.register(registry.Verifier("gsm8k", Gsm8kTruth, judge))
