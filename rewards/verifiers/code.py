"""Verifier `code`: the response is a Python program that must pass unit tests, run in the sandbox."""

import ast
from typing import Any, Self

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from rewards import registry
from rewards.analysis.parsing import words_of
from rewards.sandbox import AssertCase
from rewards.settings import JudgeSettings
from rewards.verdict import Verdict
from rewards.verifiers import entry_points
from rewards.verifiers.programs import judge_program, program_in


class CodeTruth(BaseModel):
    """The unit tests of one problem, hidden ones included.

    tests: each a few statements, usually one `assert`, that use names defined by the program. visible: the first
    `visible` tests are in the prompt, the others are hidden. entry_points: names that the program must define in
    addition to those that can only be its own: a name of a builtin or a library (`sum`, `bisect`) means the original in
    the tests unless it is listed here. impossible: the visible tests contradict the prompt's text
    (data_prep/impossible.py): no program is correct, and one that passes them special-cases.
    """

    tests: list[str] = Field(min_length=1)
    visible: int = Field(default=0, ge=0)
    entry_points: list[str] = Field(default_factory=list, max_length=256)
    impossible: bool = False

    @field_validator("tests")
    @classmethod
    def _are_python(cls, tests: list[str]) -> list[str]:
        for test in tests:
            ast.parse(test)
        return tests

    @field_validator("entry_points")
    @classmethod
    def _are_names(cls, names: list[str]) -> list[str]:
        for name in names:
            if not name.isidentifier():
                raise ValueError(f"an entry point must be a Python identifier, not {name!r}")
        return names

    @model_validator(mode="after")
    def _tests_use_the_program(self) -> Self:
        entry_points.require_entry_points(self.tests, self.entry_points)
        return self

    @model_serializer(mode="wrap")
    def _without_defaults_of_later_fields(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A field that a row leaves out must not change the row's bytes, and so its fingerprint.
        written: dict[str, Any] = write(self)
        return {key: value for key, value in written.items() if value or key not in ("entry_points", "impossible")}

    def all_entry_points(self) -> list[str]:
        """All names that the tests take from the program, sorted."""
        return sorted({*self.entry_points, *entry_points.derived(self.tests)})

    def shown_inputs(self) -> list[list[str]]:
        """The words of the arguments in the calls of each visible test."""
        return [
            [word for call in ast.walk(ast.parse(test)) if isinstance(call, ast.Call) for word in words_of(call)]
            for test in self.tests[: self.visible]
        ]


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Run the program on every unit test; the pass ratio is the share that passed."""
    assert isinstance(truth, CodeTruth)
    cases = [AssertCase(test) for test in truth.tests]
    return await judge_program(
        response, cases, settings, truth.shown_inputs(), truth.all_entry_points(), impossible=truth.impossible
    )


registry.register(registry.Verifier("code", CodeTruth, judge, program_in))
