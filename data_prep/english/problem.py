"""One problem of the English suite."""

from dataclasses import dataclass

from data_prep.micro.problems import MicroProblem


@dataclass(frozen=True, kw_only=True)
class EnglishProblem(MicroProblem):
    """A problem; `key` is the same for problems that differ in names and wording only, and decides their split."""

    key: str
    level: int


class Unsuitable(ValueError):
    """A random problem is ambiguous or trivial; draw another one."""


def sentence(text: str) -> str:
    """The text with a capital first letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "?", "!")) else ".")
