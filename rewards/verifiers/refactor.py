"""Verifier `refactor`: the response is a Python program that behaves like a given one but is written differently.

New names, a new layout, idle code and added statements are no refactoring (rewards/analysis/normal_form.py). Every unit
test is one share of the score. A program that passes them all earns another share if it is tidy (`is_tidy`), and, if
the problem limits the number of statements, another one if it keeps the limit (`is_brief`).
"""

import ast
from dataclasses import replace

from pydantic import BaseModel, Field, field_validator

from rewards import registry
from rewards.analysis.imports import hides_code
from rewards.analysis.normal_form import normal_form, only_adds, same_program
from rewards.analysis.parsing import is_bare_constant, parse
from rewards.sandbox import AssertCase
from rewards.settings import JudgeSettings
from rewards.verdict import Verdict
from rewards.verifiers.code import CodeTruth
from rewards.verifiers.programs import counted_tests, judge_program, program_in

MAX_COLUMNS = 100


class RefactorTruth(CodeTruth):
    """The unit tests and the program to refactor.

    original: the program, as the prompt shows it. max_statements: limit for the new program; None: no limit.
    """

    original: str
    max_statements: int | None = Field(default=None, ge=1)

    @field_validator("original")
    @classmethod
    def _is_python(cls, original: str) -> str:
        ast.parse(original)
        if normal_form(original, ()) is None:
            raise ValueError("the original must be a program that compiles and has at most 16,384 characters")
        return original


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Compare the program with the original, then run the tests; the pass ratio is the share of tests, tidiness and
    brevity that it earned.
    """
    assert isinstance(truth, RefactorTruth)
    source = program_in(response)
    names = truth.all_entry_points()
    is_same = parse(source) is not None and same_program(source, truth.original, names)
    if is_same or only_adds(source, truth.original, names):
        return Verdict.failed("wrong_answer", well_formed=True)
    cases = [AssertCase(test) for test in truth.tests]
    shown, impossible = truth.shown_inputs(), truth.impossible
    verdict = await judge_program(response, cases, settings, shown, names, impossible=impossible)
    if verdict.pass_ratio == 0.0:
        return verdict
    most = truth.max_statements
    tests = counted_tests(len(cases), truth.visible, settings)
    shares = tests + (1 if most is None else 2)
    earned = round(verdict.pass_ratio * tests)
    if verdict.correct:
        earned += is_tidy(source) + (most is not None and is_brief(source, most))
    error = "wrong_answer" if verdict.error == "none" else verdict.error
    shaped = Verdict.of_ratio(earned / shares, error, partial_credit=settings.partial_credit, guard=verdict.guard)
    return replace(shaped, visible=verdict.visible)


def is_tidy(source: str) -> bool:
    """Whether no line has tabs, trailing spaces, more than one statement, or more than MAX_COLUMNS characters."""
    starts = [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    lines = source.split("\n")
    return len(set(starts)) == len(starts) and not any(
        "\t" in line or line != line.rstrip() or len(line) > MAX_COLUMNS for line in lines
    )


def is_brief(source: str, most: int) -> bool:
    """Whether a program has at most `most` statements and no means to execute others (rewards/analysis/imports.py)."""
    return statements(source) <= most and not hides_code(source)


def statements(source: str) -> int:
    """The number of statements in a program, nested ones included, docstrings excluded."""
    nodes = ast.walk(ast.parse(source))
    return sum(isinstance(node, ast.stmt) and not is_bare_constant(node) for node in nodes)


registry.register(registry.Verifier("refactor", RefactorTruth, judge, program_in))
