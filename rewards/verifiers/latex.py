"""Verifier `latex`: the last `\\boxed{...}`, or else the text after the last `Answer:`, must equal the expected LaTeX.

Words, plain numbers and lists of these are compared exactly (rewards/verifiers/latex_forms.py); the library math-verify
compares all others, in the sandbox, as it evaluates them. An answer that leaves a choice, or its computation, is wrong.
"""

import re

from pydantic import BaseModel, ConfigDict, Field

from rewards import registry
from rewards.extraction import answer_part
from rewards.settings import JudgeSettings
from rewards.verdict import Verdict
from rewards.verifiers.gsm8k import by_math_verify
from rewards.verifiers.latex_forms import equal, is_open, spelling

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])[ \t]*+")
_BRACE = re.compile(r"\\[\\{}]|[{}]")
_TOKEN = re.compile(r"[^\s$]*+")
# Most characters of an answer that math-verify reads, beside four for each of the expected one: long ones take it long.
_LONGEST = 400
_ANSWER = re.compile(r"(?<![A-Za-z])answer[ \t]*:", re.IGNORECASE)


class LatexTruth(BaseModel):
    """The expected answer in LaTeX, without `$` or `\\boxed`."""

    model_config = ConfigDict(extra="forbid")
    answer: str = Field(min_length=1)
    answer_line: bool = Field(default=False, description="whether `Answer:` after the last box counts instead of it")


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Compare the answer of a response with the expected one."""
    assert isinstance(truth, LatexTruth)
    answer = final_answer(response, answer_line=truth.answer_line)
    if answer is None:
        return Verdict.failed("extract")
    if spelling(answer) == spelling(truth.answer):
        return Verdict.of_ratio(1.0)
    if is_open(answer, truth.answer):
        return Verdict.failed("wrong_answer", well_formed=True)
    decided = equal(answer, truth.answer)
    if decided is not None:
        return Verdict.of_ratio(float(decided))
    if len(answer) > _LONGEST + 4 * len(truth.answer):
        return Verdict.failed("wrong_answer", well_formed=True)
    return await by_math_verify(f"\\boxed{{{answer}}}", f"${truth.answer}$", settings)


def final_answer(response: str, *, answer_line: bool = False) -> str | None:
    """The text in the last box, or after `Answer:` if there is no box; None if there is neither.

    answer_line: text after an `Answer:` that follows the last box counts instead of it.
    """
    text = answer_part(response)
    if text is None:
        return None
    boxes, marks = list(_BOX.finditer(text)), list(_ANSWER.finditer(text))
    box = _inside_box(text[boxes[-1].end() :]) if boxes else None
    if marks and (not boxes or (answer_line and marks[-1].end() > boxes[-1].start())):
        return _on_line(text[marks[-1].end() :]) or box
    return box


def _on_line(text: str) -> str | None:
    """The first line of a text that is not blank, or what a box at its start holds."""
    line = text.lstrip("$* \t\r\n").partition("\n")[0]
    box = _BOX.match(line)
    return _inside_box(line[box.end() :]) if box else line.rstrip("$*. \r") or None


def _inside_box(text: str) -> str | None:
    """What a box holds, given the text after its command: in braces, or up to a blank; None if it is not closed."""
    if not text.startswith("{"):
        token = _TOKEN.match(text)
        return token[0].rstrip(".,*") or None if token else None
    depth = 0
    for brace in _BRACE.finditer(text):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)  # `\\{` shows a brace, and needs no other
        if depth == 0:
            return text[1 : brace.start()].strip() or None
    return None


registry.register(registry.Verifier("latex", LatexTruth, judge))
