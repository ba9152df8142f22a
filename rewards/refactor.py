"""Verifier `refactor`: the response is a Python program that does what a given one does, written in another way.

It must compile and run (else it is worth nothing), and its syntax tree must differ from the given program's: what
is only laid out anew is no refactoring. Of what is left every unit test is one share and its form another (`is_tidy`).
"""

import ast

from pydantic import BaseModel, field_validator

from rewards import registry
from rewards.code import CodeTruth
from rewards.extraction import extract_block
from rewards.programs import judge_program
from rewards.registry import JudgeSettings
from rewards.sandbox import AssertCase
from rewards.verdict import Verdict

MAX_COLUMNS = 100


class RefactorTruth(CodeTruth):
    """The unit tests, and the program that is to be written in another way, as the prompt shows it."""

    original: str

    @field_validator("original")
    @classmethod
    def _is_python(cls, original: str) -> str:
        ast.parse(original)
        return original


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Checks compilation, execution, tests and form; the pass ratio is the share of tests and form that passed."""
    assert isinstance(truth, RefactorTruth)
    source = extract_block(response, "python") or ""
    if _tree(source) == _tree(truth.original):
        return Verdict.failed("wrong_answer", well_formed=True)
    # `pass` passes where the program runs at all; its share is then the form's.
    cases = [AssertCase("pass"), *map(AssertCase, truth.tests)]
    verdict = await judge_program(response, cases, settings, truth.shown_inputs())
    if verdict.pass_ratio == 0.0:
        return verdict
    ratio = verdict.pass_ratio - (not is_tidy(source)) / len(cases)
    error = "wrong_answer" if verdict.error == "none" else verdict.error
    return Verdict.of_ratio(ratio, error, partial_credit=settings.partial_credit, guard=verdict.guard)


def is_tidy(source: str) -> bool:
    """Whether no line has tabs, blanks at its end, two statements in one, or more than MAX_COLUMNS characters."""
    starts = [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    lines = source.split("\n")
    return len(set(starts)) == len(starts) and not any(
        "\t" in line or line != line.rstrip() or len(line) > MAX_COLUMNS for line in lines
    )


def _tree(source: str) -> str | None:
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


registry.register(registry.Verifier("refactor", RefactorTruth, judge))
