"""Verifier `stdio`: the response is a Python program that reads its input and prints the answer, run in the sandbox.

Lines are compared in order. White space at line ends and empty lines at the end do not count; leading and inner spaces
count only with `layout`. Numbers with a fraction may differ by a relative 1e-6 (rewards/sandbox/inside/compare.py).
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from rewards import registry
from rewards.sandbox import StdioCase
from rewards.settings import JudgeSettings
from rewards.verdict import Verdict
from rewards.verifiers.programs import judge_program, program_in


class Printed(BaseModel):
    """One input, and the output of a correct program."""

    model_config = ConfigDict(extra="forbid")
    stdin: str
    expected: str


class StdioTruth(BaseModel):
    """The cases of one problem, hidden ones included; the first `visible` are in the prompt.

    layout: the task is about layout, so leading and inner spaces count.
    """

    model_config = ConfigDict(extra="forbid")
    cases: list[Printed] = Field(min_length=1)
    visible: int = Field(default=0, ge=0)
    layout: bool = False

    @model_serializer(mode="wrap")
    def _without_defaults_of_later_fields(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A field that a row leaves out must not change the row's bytes, and so its fingerprint.
        written: dict[str, Any] = write(self)
        if not self.layout:
            written.pop("layout", None)
        return written


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Run the program on every input; the pass ratio is the share with the right output."""
    assert isinstance(truth, StdioTruth)
    cases = [StdioCase(case.stdin, case.expected, layout=truth.layout) for case in truth.cases]
    shown = [case.stdin.split() for case in truth.cases[: truth.visible]]
    return await judge_program(response, cases, settings, shown)


registry.register(registry.Verifier("stdio", StdioTruth, judge, program_in))
