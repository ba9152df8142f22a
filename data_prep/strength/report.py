"""The audit of tests as Markdown. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence

from data_prep.strength.strength import Standing, Strength, Survivor

_LISTED = 200


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
