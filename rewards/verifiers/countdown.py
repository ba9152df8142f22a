"""Verifier `countdown`: an expression in `<answer>` tags that uses every given number once and equals the target.

The last `<answer>` after the thinking part counts. An expression has whole numbers, `+ - * /` (also × ÷ −), minus signs
and parentheses, in at most MAX_EXPRESSION characters; its syntax tree is evaluated with exact fractions.
Scores: 1.0 for a correct answer; with partial credit `countdown_numbers` (0.2) for an expression with the right numbers
and another value, `countdown_format` (0.1) for one with other numbers or a division by zero; 0.0 for no expression.
The parts for format and numbers follow the GRPO study of Countdown, which gives no amounts; 0.1 for the format is
TinyZero's.
"""

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction

from pydantic import BaseModel, ConfigDict, Field

from rewards import extraction, registry
from rewards.settings import JudgeSettings
from rewards.verdict import ErrorKind, Verdict

MAX_EXPRESSION = 256

Exact = int | Fraction

_OPERATORS: dict[type[ast.operator], Callable[[Exact, Exact], Exact]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: Fraction,
}
_EXPRESSION = re.compile(r"[0-9+\-*/() ]+")
_SIGNS = str.maketrans("×÷−\t\r\n", "*/-   ")


class CountdownTruth(BaseModel):
    """The numbers of a problem, each to be used once, and the target."""

    model_config = ConfigDict(extra="forbid")
    numbers: list[int] = Field(min_length=1, max_length=16)
    target: int


async def judge(response: str, truth: BaseModel, settings: JudgeSettings) -> Verdict:
    """Evaluate the expression of a response; the error is `infeasible` if it uses other numbers."""
    assert isinstance(truth, CountdownTruth)
    text = _answer(extraction.after_thinking(response, settings.think_opener))
    if text is None:
        return Verdict.failed("extract")
    expression = parse(text)
    if expression is None:
        return Verdict.failed("syntax")
    numbers: list[int] = []
    try:
        value = evaluate(expression, numbers)
    except ZeroDivisionError:
        return _partial("runtime", settings, settings.countdown_format)
    if sorted(numbers) != sorted(truth.numbers):
        return _partial("infeasible", settings, settings.countdown_format)
    if value != truth.target:
        return _partial("wrong_answer", settings, settings.countdown_numbers, feasible=True)
    return Verdict(1.0, True, True, "none", 1.0)


def _partial(error: ErrorKind, settings: JudgeSettings, score: float, *, feasible: bool = False) -> Verdict:
    return Verdict(score if settings.partial_credit else 0.0, False, True, error, 0.0, feasible=feasible)


def _answer(text: str | None) -> str | None:
    """The content of the last `<answer>` tags of a text."""
    before, closed, _ = (text or "").rpartition("</answer>")
    _, opened, inside = before.rpartition("<answer>")
    return inside if closed and opened else None


def parse(text: str) -> ast.expr | None:
    """The syntax tree of an expression; None if the text is too long or not an expression."""
    text = text.translate(_SIGNS).strip()
    if len(text) > MAX_EXPRESSION or not _EXPRESSION.fullmatch(text):
        return None
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _is_arithmetic(tree) else None


def _is_arithmetic(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return type(node.op) in _OPERATORS and _is_arithmetic(node.left) and _is_arithmetic(node.right)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_arithmetic(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def evaluate(node: ast.expr, numbers: list[int]) -> Exact:
    """The exact value of an expression from `parse`; appends the expression's numbers to `numbers`.

    Raises ZeroDivisionError if it has no value.
    """
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](evaluate(node.left, numbers), evaluate(node.right, numbers))
    if isinstance(node, ast.UnaryOp):
        return -evaluate(node.operand, numbers)
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int)
    numbers.append(node.value)
    return node.value


registry.register(registry.Verifier("countdown", CountdownTruth, judge))
