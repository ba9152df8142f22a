"""One kind of step of a function: Python, English and meaning side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

VariableValue = Any  # int, str, list[int] or list[str], by the kind of the function
Constant = int | str


@dataclass(frozen=True)
class Operation:
    """One kind of step. In `code` and `words`, {v} is the variable and {0}, {1}, ... are the constants.

    draws: the values of each constant. others: operations that a reader may confuse with this one.
    """

    code: str
    words: tuple[str, ...]
    apply: Callable[..., VariableValue]
    draws: tuple[Sequence[Constant], ...] = ()
    others: tuple[str, ...] = ()
