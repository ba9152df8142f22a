"""Countdown of small numbers: an expression of all given digits that equals a small target.

Difficulty 1: three digits in the order in which the expression uses them. 2: three in any order. 3: four in any order.
A plausible wrong answer has one operator changed, and another value.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

DIGITS, OPERATORS = range(1, 10), "+-*"
_LARGEST = 30
_COUNT = {1: 3, 2: 3, 3: 4}  # digits by difficulty


@dataclass(frozen=True)
class Expression:
    """Digits with an operator between each two; * binds more strongly."""

    digits: tuple[int, ...]
    operators: tuple[str, ...]

    def source(self) -> str:
        """The expression as text."""
        rest = (f"{operator}{digit}" for operator, digit in zip(self.operators, self.digits[1:], strict=True))
        return f"{self.digits[0]}{''.join(rest)}"

    def value(self) -> int:
        """Its value."""
        total, product, sign = 0, self.digits[0], 1
        for operator, digit in zip(self.operators, self.digits[1:], strict=True):
            if operator == "*":
                product *= digit
            else:
                total, product, sign = total + sign * product, digit, 1 if operator == "+" else -1
        return total + sign * product

    def neighbours(self) -> list["Expression"]:
        """The expressions of another value with one operator changed."""
        changed = [
            replace(self, operators=(*self.operators[:place], other, *self.operators[place + 1 :]))
            for place, operator in enumerate(self.operators)
            for other in OPERATORS
            if other != operator
        ]
        return [each for each in changed if each.value() != self.value()]


def random_expression(rng: random.Random, difficulty: int) -> tuple[Expression, list[int]]:
    """An expression whose value is in 1 to 30, and its digits in the order in which a prompt lists them."""
    while True:
        digits = tuple(rng.choice(DIGITS) for _ in range(_COUNT[difficulty]))
        found = Expression(digits, tuple(rng.choice(OPERATORS) for _ in digits[1:]))
        if 1 <= found.value() <= _LARGEST and found.neighbours():
            break
    listed = list(digits)
    if difficulty > 1:
        rng.shuffle(listed)
    return found, listed


def answer(expression: Expression) -> str:
    """The expression as an answer."""
    return f"<answer>{expression.source()}</answer>"


def question(digits: Sequence[int], target: int) -> str:
    """The prompt."""
    return f"make {target} of {' '.join(map(str, digits))}"
