"""Verifier `latex`: the answer in the last `\\boxed{...}`, or after the last `Answer:`, must equal the expected LaTeX.

Words, plain numbers and lists of these are compared exactly (rewards/verifiers/latex_forms.py); the library math-verify
compares all others, in the sandbox, as it evaluates them.
"""

import re

from pydantic import BaseModel, ConfigDict, Field

from rewards import registry
from rewards.extraction import MAX_ANSWER_CHARACTERS
from rewards.settings import JudgeSettings
from rewards.verdict import Verdict
from rewards.verifiers.gsm8k import by_math_verify
from rewards.verifiers.latex_forms import equal, spelling

_BOX = "\\boxed{"
_ANSWER = re.compile(r"(?<![A-Za-z])answer[ \t]*:", re.IGNORECASE)
# What joins several answers, of which one may be right; a number in words after the answer is another one.
_HEDGES = re.compile(
    r"(?<![A-Za-z])(?:or|and|either|\\lor|\\vee|\\boxed)(?![A-Za-z])|[;?|]|\n|.\\(?:text|mbox|mathrm)\{[^{}]*\d"
)


class LatexTruth(BaseModel):
    """The expected answer in LaTeX, without `$` or `\\boxed`."""

    model_config = ConfigDict(extra="forbid")
    answer: str = Field(min_length=1)


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Compare the answer of a response with the expected one."""
    assert isinstance(truth, LatexTruth)
    answer = final_answer(response)
    if answer is None:
        return Verdict.failed("extract")
    if spelling(answer) == spelling(truth.answer):
        return Verdict.of_ratio(1.0)
    if _HEDGES.search(answer) and not _HEDGES.search(truth.answer):
        return Verdict.failed("wrong_answer", well_formed=True)
    decided = equal(answer, truth.answer)
    if decided is not None:
        return Verdict.of_ratio(float(decided))
    return await by_math_verify(f"{_BOX}{answer}}}", f"${truth.answer}$", settings)


def final_answer(response: str) -> str | None:
    """The text in the last box or, if that comes later, after `Answer:` on its line; None if there is neither."""
    if len(response) > MAX_ANSWER_CHARACTERS:
        return None
    start = response.rfind(_BOX)
    marks = [found.end() for found in _ANSWER.finditer(response)]
    if marks and marks[-1] > start:
        line = response[marks[-1] :].partition("\n")[0].strip()
        return _inside_box(line) if line.startswith(_BOX) else line.lstrip("$* ").rstrip("$*. ") or None
    return None if start < 0 else _inside_box(response[start:])


def _inside_box(text: str) -> str | None:
    """What a box holds, given the text from its start; None if it is not closed."""
    depth = 0
    for place in range(len(_BOX) - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[len(_BOX) : place].strip() or None
    return None


registry.register(registry.Verifier("latex", LatexTruth, judge))
