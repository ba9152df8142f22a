"""Verifier `code`: the response is a Python program that must pass unit tests, run in the sandbox."""

import ast

from pydantic import BaseModel, Field, field_validator

from rewards import registry
from rewards.guardrails import words_of
from rewards.programs import judge_program
from rewards.registry import JudgeSettings
from rewards.sandbox import AssertCase
from rewards.verdict import Verdict


class CodeTruth(BaseModel):
    """The unit tests of one problem, hidden ones included: each a few statements over the names that the program
    defines, as a rule one `assert`. The first `visible` of them stand in the prompt, the others are held back.
    """

    tests: list[str] = Field(min_length=1)
    visible: int = Field(default=0, ge=0)

    @field_validator("tests")
    @classmethod
    def _are_python(cls, tests: list[str]) -> list[str]:
        for test in tests:
            ast.parse(test)
        return tests

    def shown_inputs(self) -> list[list[str]]:
        """Of each test in the prompt, the words of the arguments in its calls."""
        return [
            [word for call in ast.walk(ast.parse(test)) if isinstance(call, ast.Call) for word in words_of(call)]
            for test in self.tests[: self.visible]
        ]


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Runs the program against every unit test; the pass ratio is the share that passed."""
    assert isinstance(truth, CodeTruth)
    return await judge_program(response, [AssertCase(test) for test in truth.tests], settings, truth.shown_inputs())


registry.register(registry.Verifier("code", CodeTruth, judge))
