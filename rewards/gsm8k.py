"""Verifier `gsm8k`: the final number of a response equals the expected one, whichever way it is written.

`strict` reads the number after the last `####` that a number follows, `flexible` the last number; both read the whole
response. Numbers are equal by value: 42, 42.0, 42., +42, $42 and 1,234 for 1234; commas must set off thousands.
"""

import re
from collections import deque

from pydantic import BaseModel, ConfigDict, field_validator

from rewards import registry
from rewards.extraction import MAX_ANSWER_CHARACTERS
from rewards.registry import JudgeSettings
from rewards.verdict import Verdict

# A sign counts where nothing that could be subtracted from stands before it; `3-5` ends in 5.
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)(?:\.[0-9]++)?|\.[0-9]++"
_NUMBER = re.compile(rf"((?<![0-9A-Za-z)])[-−])?\$?((?<![0-9A-Za-z)])[-−])?({_DIGITS})")
_MARK = "####"
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
    number = marked_number(response) if settings.gsm8k_extraction == "strict" else last_number(response)
    return Verdict.failed("extract") if number is None else Verdict.of_ratio(float(number == truth.answer))


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
