"""Verifier `code`: the response is a Python program that must pass unit tests, run in the sandbox."""

import ast

from pydantic import BaseModel, Field, field_validator

from rewards import registry
from rewards.execution import sandbox_at
from rewards.extraction import extract_block
from rewards.registry import JudgeSettings
from rewards.verdict import ErrorKind, Verdict

_ERRORS: dict[str, ErrorKind] = {
    "wrong_answer": "wrong_answer",
    "runtime_error": "runtime",
    "syntax_error": "syntax",
    "timeout": "timeout",
    "memory": "runtime",
    "output_limit": "runtime",
}


class CodeTruth(BaseModel):
    """The unit tests of one problem, hidden ones included: each a few statements over the names that the program
    defines, as a rule one `assert`.
    """

    tests: list[str] = Field(min_length=1)

    @field_validator("tests")
    @classmethod
    def _are_python(cls, tests: list[str]) -> list[str]:
        for test in tests:
            ast.parse(test)
        return tests


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Runs the program against every unit test; the pass ratio is the share that passed."""
    assert isinstance(truth, CodeTruth)
    program = extract_block(response, "python")
    if program is None:
        return Verdict.failed("extract")
    if not _parses(program):
        return Verdict.failed("syntax")
    result = await sandbox_at(settings.sandbox_url).check(
        program, [{"source": test} for test in truth.tests], timeout=settings.timeout, memory_mb=settings.memory_mb
    )
    first_failure = next((outcome for outcome in result.outcomes if outcome != "passed"), "wrong_answer")
    return Verdict.of_ratio(result.fraction, _ERRORS[first_failure], partial_credit=settings.partial_credit)


def _parses(program: str) -> bool:
    """Spares the sandbox what cannot run: most early answers of a small model."""
    try:
        ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


registry.register(registry.Verifier("code", CodeTruth, judge))
