"""Tests that need no code to be judged: `assert f(1, [2]) == 3` is a call, a comparison and three values. Pure."""

from __future__ import annotations

import ast
import builtins
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rewards.sandbox.codec import NotData, decode, encode
from rewards.sandbox.compare import same_value

_LIBRARY = frozenset(dir(builtins)) | sys.stdlib_module_names


@dataclass(frozen=True)
class Call:
    """One call and what its value must be.

    `relation`: "tolerant" (compare.py), "==", "is" (True, False or None), "true" or "false". `args`, `kwargs`: encoded.
    """

    entry_point: str
    args: Any
    kwargs: Any
    relation: str
    expected: Any = None

    def holds(self, value: Any) -> bool:
        """Whether a decoded value (plain data) satisfies the test."""
        if self.relation == "tolerant":
            return same_value(value, self.expected)
        if self.relation == "==":
            return bool(value == self.expected)
        if self.relation == "is":
            return value is self.expected
        return bool(value) is (self.relation == "true")


def as_calls(cases: list[dict[str, Any]], setup: str, entry_points: frozenset[str] = frozenset()) -> list[Call] | None:
    """The cases as calls, or None when one of them (or the setup) needs code to run.

    A builtin or a library name in a test means the original, whatever the program defines: the judge sees to that.
    Only `entry_points` are the program's in any case.
    """
    if not _only_imports(setup):
        return None
    calls = []
    for case in cases:
        call = parse_assert(case["source"]) if "source" in case else _from_case(case)
        if call is None or ("source" in case and call.entry_point in _LIBRARY - entry_points):
            return None
        calls.append(call)
    return calls


def _from_case(case: dict[str, Any]) -> Call:
    return Call(case["entry_point"], case["args"], case["kwargs"], "tolerant", decode(case["expected"]))


@lru_cache(maxsize=256)
def _only_imports(setup: str) -> bool:
    try:
        body = ast.parse(setup).body
    except (SyntaxError, ValueError):
        return False
    return all(isinstance(statement, (ast.Import, ast.ImportFrom)) for statement in body)


@lru_cache(maxsize=8192)
def parse_assert(source: str) -> Call | None:
    """The call that a single assert makes on literal arguments, or None for any other test.

    Results are kept: counterfactual replays bring the same tests with every program.
    """
    try:
        body = ast.parse(source).body
        if len(body) != 1 or not isinstance(body[0], ast.Assert):
            return None
        return _relation(body[0].test)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError, NotData):
        return None


def _relation(test: ast.expr) -> Call | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _call(test.operand, "false")
    if not isinstance(test, ast.Compare):
        return _call(test, "true")
    if len(test.ops) != 1:
        return None
    left, right = test.left, test.comparators[0]
    if isinstance(test.ops[0], ast.Is):
        expected = ast.literal_eval(right)
        return _call(left, "is", expected) if expected is None or isinstance(expected, bool) else None
    if not isinstance(test.ops[0], ast.Eq):
        return None
    if isinstance(left, ast.Call) and not isinstance(right, ast.Call):
        return _call(left, "==", ast.literal_eval(right))
    return None


def _call(node: ast.expr, relation: str, expected: Any = None) -> Call | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    name = node.func.id
    if any(word.arg is None for word in node.keywords):
        return None
    args = encode([ast.literal_eval(argument) for argument in node.args])
    kwargs = encode({str(word.arg): ast.literal_eval(word.value) for word in node.keywords})
    return Call(name, args, kwargs, relation, expected)
