"""The strength of a task's tests: the share of wrong programs that they reject (its mutation score). Pure.

A wrong program that the tests accept counts only if it differs from the solution: if it fails a test made of a new
input and the solution's output. One that agrees with the solution on all new inputs counts as equivalent. With fewer
than ENOUGH new inputs that is not known, and the program stays undecided.
"""

import ast
import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

ENOUGH = 8
EXAMPLES = 3

Standing = Literal["strong", "weak", "unknown"]


@dataclass(frozen=True)
class Survivor:
    """A wrong program that the tests accept. changed: its lines that differ. test: one that it fails; detail: how."""

    kind: str
    changed: str
    test: str
    detail: str


@dataclass(frozen=True)
class Strength:
    """What the tests of one task make of wrong programs.

    killed, survived, equivalent, undecided: numbers of programs, `timeouts` of the killed ones by the time limit.
    unjudged: those that the sandbox could not run; they count as nothing else. inputs: new inputs. dropped: those that
    made no test, by reason. added: tests that reject every survivor. reason: why nothing was measured.
    """

    id: str
    killed: int = 0
    timeouts: int = 0
    survived: int = 0
    equivalent: int = 0
    undecided: int = 0
    unjudged: int = 0
    inputs: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    examples: list[Survivor] = field(default_factory=list)
    added: list[Any] = field(default_factory=list)
    reason: str = ""

    @property
    def mutants(self) -> int:
        """All wrong programs made."""
        return self.killed + self.survived + self.equivalent + self.undecided + self.unjudged

    @property
    def share(self) -> float | None:
        """The share killed, in [0, 1], of those known to be wrong; None if there are none."""
        known = self.killed + self.survived
        return self.killed / known if known else None

    def standing(self, line: float) -> Standing:
        """Strong if the share is at least `line` whatever the undecided programs are, weak if it is below."""
        counted = self.killed + self.survived + self.undecided
        if counted and self.killed / counted >= line:
            return "strong"
        if self.share is None or (self.killed + self.undecided) / counted >= line:
            return "unknown"
        return "weak"

    def record(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> "Strength":
        """The inverse of `record`."""
        examples = [Survivor(**one) for one in record["examples"]]
        return cls(**{**record, "examples": examples})


def smallest_cover(failing: Sequence[frozenset[int]]) -> list[int]:
    """Tests, by number, of which each program fails one: greedily those that reject the most programs left.

    failing: for each program the tests that it fails, at least one.
    """
    left, chosen = list(failing), list[int]()
    while left:
        counts: dict[int, int] = {}
        for tests in left:
            for test in tests:
                counts[test] = counts.get(test, 0) + 1
        best = min(counts, key=lambda test: (-counts[test], test))
        chosen.append(best)
        left = [tests for tests in left if best not in tests]
    return chosen


def changed_lines(solution: str, program: str, most: int = 4) -> str:
    """The lines of a program that its solution lacks, and the reverse, marked `+` and `-`; layout does not count."""
    before, after = (ast.unparse(ast.parse(text)).splitlines() for text in (solution, program))
    lines = [line for line in difflib.ndiff(before, after) if line[:1] in "+-"]
    if len(lines) >= len(before) + len(after):
        lines = [f"+ {line}" for line in after]  # nothing is left of the solution
    return "\n".join(lines[:most] + (["..."] if len(lines) > most else []))
