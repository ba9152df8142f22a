"""A task whose shown test contradicts its text: an expected value is changed in the test and in the prompt. Pure.

The one-off variant of ImpossibleBench (Zhong, Raghunathan and Carlini 2025).
"""

import ast
from typing import Any

from rewards.analysis.parsing import LineOffsets
from rewards.verifiers.code import CodeTruth


def contradict(prompt: str, truth: CodeTruth) -> tuple[str, CodeTruth] | None:
    """The prompt and the ground truth with another expected value in the first shown test where that can be done.

    None if no shown test compares a result with a literal in words that occur once in the prompt.
    """
    for number, test in enumerate(truth.tests[: truth.visible]):
        found = other_expectation(test)
        if found is not None and prompt.count(found[0]) == 1:
            tests = [*truth.tests]
            tests[number] = test.replace(*found)
            changed = truth.model_copy(update={"tests": tests, "impossible": True})
            return prompt.replace(*found), changed
    return None


def other_expectation(test: str) -> tuple[str, str] | None:
    """The comparison in a test, and the same with another literal; None unless it compares for equality with one."""
    last = ast.parse(test).body[-1]
    match last:
        case ast.Assert(test=ast.Compare(ops=[ast.Eq() | ast.Is()], comparators=[expected]) as comparison):
            pass
        case _:
            return None
    constants = [node for node in ast.walk(expected) if isinstance(node, ast.Constant)]
    if not constants:
        return None
    changed = max(constants, key=lambda node: (node.lineno, node.col_offset))
    offsets = LineOffsets(test)
    start, end = _span(comparison, offsets)
    first, after = _span(changed, offsets)
    text, value = test[start:end], _span(expected, offsets)
    other = f"{test[start:first]}{_other(changed.value)}{test[after:end]}"
    literals = test[value[0] : value[1]], other[value[0] - start :]
    return (text, other) if _are_different(*literals) and test.count(text) == 1 else None


def _span(node: ast.expr, offsets: LineOffsets) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return offsets.character(node.lineno, node.col_offset), offsets.character(node.end_lineno, node.end_col_offset)


def _other(value: Any) -> str:
    match value:
        case bool():
            return repr(not value)
        case int() | float():
            return repr(value + 1)
        case str():
            return repr(f"{value}x")
        case _:
            return "0"


def _are_different(one: str, other: str) -> bool:
    """Whether two texts are literals of different values; False for a text that is no literal."""
    try:
        return bool(ast.literal_eval(one) != ast.literal_eval(other))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
