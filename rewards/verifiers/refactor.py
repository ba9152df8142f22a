"""Verifier `refactor`: the response is a Python program that does what a given one does, written in another way.

Other names, another layout, idle code and further statements are no refactoring (rewards/analysis/normal_form.py).
Every unit test is one share of the score. A program that passes them all can earn a share for its form (`is_tidy`),
and one for having few statements where the problem asks for that (`is_brief`).
"""

import ast

from pydantic import BaseModel, Field, field_validator

from rewards import registry
from rewards.analysis.imports import hides_code
from rewards.analysis.normal_form import normal_form, only_adds, same_program
from rewards.analysis.parsing import parse
from rewards.sandbox import AssertCase
from rewards.settings import JudgeSettings
from rewards.verdict import Verdict
from rewards.verifiers.code import CodeTruth
from rewards.verifiers.programs import judge_program, program_in

MAX_COLUMNS = 100


class RefactorTruth(CodeTruth):
    """The unit tests, the program that is to be written in another way, as the prompt shows it, and the most
    statements that the new one may have (None: any number).
    """

    original: str
    max_statements: int | None = Field(default=None, ge=1)

    @field_validator("original")
    @classmethod
    def _is_python(cls, original: str) -> str:
        ast.parse(original)
        if normal_form(original, ()) is None:
            raise ValueError("the original must be a program that compiles, of at most 16,384 characters")
        return original


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Compares the program with the original, then runs the tests; the pass ratio is the share of tests, form and
    brevity that it earned.
    """
    assert isinstance(truth, RefactorTruth)
    source = program_in(response)
    names = truth.all_entry_points()
    same = parse(source) is not None and same_program(source, truth.original, names)
    if same or only_adds(source, truth.original, names):
        return Verdict.failed("wrong_answer", well_formed=True)
    cases = [AssertCase(test) for test in truth.tests]
    verdict = await judge_program(response, cases, settings, truth.shown_inputs(), names)
    if verdict.pass_ratio == 0.0:
        return verdict
    most = truth.max_statements
    parts = len(cases) + (1 if most is None else 2)
    earned = round(verdict.pass_ratio * len(cases))
    if verdict.correct:
        earned += is_tidy(source) + (most is not None and is_brief(source, most))
    error = "wrong_answer" if verdict.error == "none" else verdict.error
    return Verdict.of_ratio(earned / parts, error, partial_credit=settings.partial_credit, guard=verdict.guard)


def is_tidy(source: str) -> bool:
    """Whether no line has tabs, blanks at its end, two statements in one, or more than MAX_COLUMNS characters."""
    starts = [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    lines = source.split("\n")
    return len(set(starts)) == len(starts) and not any(
        "\t" in line or line != line.rstrip() or len(line) > MAX_COLUMNS for line in lines
    )


def is_brief(source: str, most: int) -> bool:
    """Whether a program has at most so many statements and no way to run others (rewards/analysis/imports.py)."""
    return statements(source) <= most and not hides_code(source)


def statements(source: str) -> int:
    """How many statements a program has, those inside others counted too and docstrings not."""
    nodes = ast.walk(ast.parse(source))
    return sum(isinstance(node, ast.stmt) and not _is_text(node) for node in nodes)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


registry.register(registry.Verifier("refactor", RefactorTruth, judge, program_in))
