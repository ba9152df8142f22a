"""Verifier `calls`: the response is a Python program whose function is called with plain data, run in the sandbox.

The function stands at the top level or, as LeetCode has it, is a method of class `Solution`. As there, names of usual
modules of the standard library need no import. Expected values are compared by rewards/sandbox/inside/compare.py: a
tuple equals a list, floats may differ by a relative 1e-6, `1` is not `True`.
"""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rewards import registry
from rewards.sandbox import CallCase
from rewards.settings import JudgeSettings
from rewards.verdict import Verdict
from rewards.verifiers.programs import judge_program, program_in

_OPENED = "string re datetime collections heapq bisect math random statistics itertools functools operator typing"
_NAMED = "string re datetime collections heapq bisect copy math random statistics itertools functools operator sys json"
# The builtins come last: `pow` is not that of math. Names of modules win over those in them: `datetime`, `bisect`.
_NAMES = (
    "".join(f"from {name} import *; " for name in [*_OPENED.split(), "builtins"])
    + f"import {', '.join(_NAMED.split())}\n"
)


class ExpectedCall(BaseModel):
    """Arguments, and what a correct function returns."""

    model_config = ConfigDict(extra="forbid")
    args: list[Any]
    expected: Any


class CallsTruth(BaseModel):
    """The calls of one problem, hidden ones included; the first `visible` are in the prompt.

    wrapped: every expected value is a list of one item, and functions that return the bare item are correct, too.
    """

    model_config = ConfigDict(extra="forbid")
    function: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    calls: list[ExpectedCall] = Field(min_length=1)
    visible: int = Field(default=0, ge=0)
    wrapped: bool = False

    @model_validator(mode="after")
    def _has_items(self) -> Self:
        if self.wrapped and not all(isinstance(one.expected, list) and len(one.expected) == 1 for one in self.calls):
            raise ValueError("wrapped: an expected value is not a list of one item")
        return self


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Call the function with every list of arguments; the pass ratio is the share with the right result."""
    assert isinstance(truth, CallsTruth)
    shown = [[word for one in call.args for word in str(one).split()] for call in truth.calls[: truth.visible]]

    async def judged(expected: Sequence[Any]) -> Verdict:
        cases = [CallCase(truth.function, list(map(_with_whole_keys, call.args)), expected=one)
                 for call, one in zip(truth.calls, expected, strict=True)]  # fmt: skip
        return await judge_program(response, cases, settings, shown, names=_NAMES)

    verdict = await judged([call.expected for call in truth.calls])
    if not truth.wrapped or verdict.correct or verdict.error != "wrong_answer":
        return verdict
    return max(verdict, await judged([call.expected[0] for call in truth.calls]), key=lambda one: one.pass_ratio)


def _with_whole_keys(value: Any) -> Any:
    """A dict with whole numbers for keys that are written so, as JSON has no other keys than text."""
    if isinstance(value, dict) and all(key.removeprefix("-").isdecimal() and key.isascii() for key in value):
        return {int(key): item for key, item in value.items()}
    return value


registry.register(registry.Verifier("calls", CallsTruth, judge, program_in))
