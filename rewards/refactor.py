"""Verifier `refactor`: the response is a Python program that does what a given one does, written in another way.

It must compile and run (else it is worth nothing), and its syntax tree must differ from the given program's: what
is only laid out anew is no refactoring. Of what is left every unit test is one share, its form another (`is_tidy`), and
where the problem asks for a program of few statements, to have no more than those is one as well.
"""

import ast

from pydantic import BaseModel, Field, field_validator

from rewards import registry
from rewards.code import CodeTruth
from rewards.extraction import extract_block
from rewards.programs import judge_program
from rewards.registry import JudgeSettings
from rewards.sandbox import AssertCase
from rewards.verdict import Verdict

MAX_COLUMNS = 100
_RUN_TEXT = ("exec", "eval")


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
        return original


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Checks compilation, execution, tests, form and statements; the pass ratio is the share of these that passed."""
    assert isinstance(truth, RefactorTruth)
    source = extract_block(response, "python") or ""
    if _tree(source) == _tree(truth.original):
        return Verdict.failed("wrong_answer", well_formed=True)
    most = truth.max_statements
    # `pass` passes where the program runs at all; what it earns is the share of form and of brevity.
    cases = [*map(AssertCase, truth.tests), *[AssertCase("pass")] * (1 if most is None else 2)]
    verdict = await judge_program(response, cases, settings, truth.shown_inputs())
    if verdict.pass_ratio == 0.0:
        return verdict
    failed = (not is_tidy(source)) + (most is not None and not is_brief(source, most))
    ratio = verdict.pass_ratio - failed / len(cases)
    error = "wrong_answer" if verdict.error == "none" else verdict.error
    return Verdict.of_ratio(ratio, error, partial_credit=settings.partial_credit, guard=verdict.guard)


def is_tidy(source: str) -> bool:
    """Whether no line has tabs, blanks at its end, two statements in one, or more than MAX_COLUMNS characters."""
    starts = [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    lines = source.split("\n")
    return len(set(starts)) == len(starts) and not any(
        "\t" in line or line != line.rstrip() or len(line) > MAX_COLUMNS for line in lines
    )


def is_brief(source: str, most: int) -> bool:
    """Whether a program has at most so many statements and hides none in a text that it runs."""
    names = {getattr(node, "id", getattr(node, "attr", None)) for node in ast.walk(ast.parse(source))}
    return statements(source) <= most and names.isdisjoint(_RUN_TEXT)


def statements(source: str) -> int:
    """How many statements a program has, those inside others counted too and docstrings not."""
    nodes = ast.walk(ast.parse(source))
    return sum(isinstance(node, ast.stmt) and not _is_text(node) for node in nodes)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _tree(source: str) -> str | None:
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


registry.register(registry.Verifier("refactor", RefactorTruth, judge))
