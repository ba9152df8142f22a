"""One problem of the English suite."""

from collections.abc import Callable
from dataclasses import dataclass

from data_prep.micro.problems import MicroProblem


@dataclass(frozen=True, kw_only=True)
class EnglishProblem(MicroProblem):
    """A problem; `key` is the same for problems that differ in names and wording only, and decides their split."""

    key: str
    level: int


class Unsuitable(ValueError):
    """A random problem is ambiguous, trivial or not wanted; draw another one."""


# Whether a problem of this key is wanted; asked before the costly parts of a problem are made.
Accept = Callable[[str], bool]


def require(accept: Accept, key: str) -> None:
    """Raise Unsuitable unless the key is wanted."""
    if not accept(key):
        raise Unsuitable("not wanted")


def anything(key: str) -> bool:
    """Accept every problem."""
    return True


def sentence(text: str) -> str:
    """The text with a capital first letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "?", "!")) else ".")
