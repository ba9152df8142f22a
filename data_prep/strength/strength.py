"""The strength of a task's tests, the share of wrong programs that they reject (its mutation score), and its report.

Pure. A wrong program that the tests accept counts only if it differs from the solution: if it fails a test made of a
new input and the solution's output. One that agrees with the solution on all new inputs counts as equivalent. With
fewer than ENOUGH new inputs that is not known, and the program stays undecided.
"""

import ast
import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

ENOUGH = 8
EXAMPLES = 3

Standing = Literal["strong", "weak", "unknown"]

_LISTED = 200


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


def counts_of(problems: Sequence[Strength], line: float) -> Counter[Standing]:
    """How many problems are strong, weak and unknown."""
    return Counter(one.standing(line) for one in problems)


def report(problems: Sequence[Strength], line: float) -> str:
    """Totals, then the weak problems from the weakest on, each with examples of accepted wrong programs."""
    counts = counts_of(problems, line)
    weak = sorted((one for one in problems if one.standing(line) == "weak"), key=lambda one: (one.share or 0.0, one.id))
    unknown = [one for one in problems if one.standing(line) == "unknown"]
    parts = [
        "# Strength of the tests",
        f"{len(problems):,} problems: {counts['strong']:,} strong, {counts['weak']:,} weak, {counts['unknown']:,} "
        f"unknown. Weak: the tests reject less than {line:g} of the wrong programs. A program that gives the "
        "solution's answer on every new input counts as equivalent; where too few new inputs could be made, it is "
        "undecided.",
        _totals(problems),
        _inputs(problems),
        f"## Weak\n\n{_table(weak)}" if weak else "No problem is weak.",
        *(_examples(one) for one in weak[:_LISTED]),
    ]
    if unknown:
        listed = "\n".join(f"- `{one.id}`: {_why(one)}" for one in unknown[:_LISTED])
        parts.append(f"## Unknown\n\n{listed}")
    return "\n\n".join(parts) + "\n"


def _totals(problems: Sequence[Strength]) -> str:
    kinds = sum((Counter(one.kinds) for one in problems), Counter[str]())
    killed, timeouts = sum(one.killed for one in problems), sum(one.timeouts for one in problems)
    rows = [
        ("wrong programs", sum(one.mutants for one in problems)),
        ("killed", killed),
        ("killed by the time limit", timeouts),
        ("survived", sum(one.survived for one in problems)),
        *((f"survived: {kind}", count) for kind, count in kinds.most_common()),
        ("equivalent", sum(one.equivalent for one in problems)),
        ("undecided", sum(one.undecided for one in problems)),
        ("not judged", sum(one.unjudged for one in problems)),
    ]
    return "\n".join(["|programs|number|", "|---|---:|", *(f"|{name}|{count:,}|" for name, count in rows)])


def _inputs(problems: Sequence[Strength]) -> str:
    """How many new inputs were used, and how many were dropped by reason."""
    dropped = sum((Counter(one.dropped) for one in problems), Counter[str]())
    rows = [("used", sum(one.inputs for one in problems))]
    rows += [(f"dropped: {reason}", count) for reason, count in dropped.most_common()]
    return "\n".join(["|new inputs|number|", "|---|---:|", *(f"|{name}|{count:,}|" for name, count in rows)])


def _table(weak: Sequence[Strength]) -> str:
    rows = (
        f"|`{one.id}`|{one.mutants}|{one.killed}|{one.survived}|{one.equivalent}|{one.share or 0.0:.2f}|"
        for one in weak
    )
    return "\n".join(
        ["|problem|wrong programs|killed|survived|equivalent|share|", "|---|---:|---:|---:|---:|---:|", *rows]
    )


def _examples(problem: Strength) -> str:
    return "\n".join([f"### {problem.id}", *(line for example in problem.examples for line in _example(example))])


def _example(example: Survivor) -> Iterator[str]:
    yield f"\n{example.kind}; fails `{' '.join(example.test.split())}`: {' '.join(example.detail.split())}\n"
    yield f"````diff\n{example.changed}\n````"


def _why(problem: Strength) -> str:
    if problem.reason:
        return problem.reason
    if problem.undecided:
        return f"{problem.undecided} accepted programs, {problem.inputs} new inputs"
    return "no wrong program that differs from the solution"
