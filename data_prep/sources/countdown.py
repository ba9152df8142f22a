"""Countdown: `python -m data_prep.sources.countdown --out DIR [--numbers 3 4 5 6]`.

Reach a target with + - * / and every given number exactly once. Problems are solvable by construction.
"""

import operator
import random
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

from data_prep.sources import procedural
from data_prep.sources.source import run, source_parser
from rewards import extraction

_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_LARGEST_NUMBER, _LARGEST_TARGET = 99, 999

Term = tuple[Fraction, str]


def countdown_fields(numbers: Sequence[int], target: int, solution: str) -> dict[str, Any]:
    """The fields of a task of verifier `countdown`, without those of its origin."""
    return {
        "skill": "countdown",
        "verifier": "countdown",
        "prompt": (
            f"Using each of the numbers {', '.join(map(str, numbers))} exactly once, and + - * / and brackets, write "
            f"an expression that equals {target}. {extraction.REQUEST} "
            "Put the expression between <answer> and </answer>."
        ),
        "ground_truth": {"numbers": list(numbers), "target": target},
        "solution": f"<answer>{solution}</answer>",
        "notes": {"level": len(numbers)},
    }


def solve(numbers: Sequence[int], target: int) -> str | None:
    """An expression with every number once that equals the target exactly; None if there is none."""
    return _search([(Fraction(number), str(number)) for number in numbers], Fraction(target), set())


def _search(terms: list[Term], target: Fraction, failed: set[tuple[Fraction, ...]]) -> str | None:
    if len(terms) == 1:
        return terms[0][1] if terms[0][0] == target else None
    key = tuple(sorted(value for value, _ in terms))
    if key in failed:
        return None
    for left, right in combinations(range(len(terms)), 2):
        rest = [term for place, term in enumerate(terms) if place not in (left, right)]
        for joined in _joined(terms[left], terms[right]):
            if (found := _search([*rest, joined], target, failed)) is not None:
                return found
    failed.add(key)
    return None


def _joined(left: Term, right: Term) -> Iterator[Term]:
    """All results of one operation on two terms; the order matters only for - and /."""
    for sign, operation in _OPERATIONS.items():
        for (one, one_text), (other, other_text) in ((left, right), (right, left))[: 1 if sign in "+*" else 2]:
            if sign != "/" or other != 0:
                yield operation(one, other), f"({one_text} {sign} {other_text})"


def random_problem(rng: random.Random, count: int) -> tuple[list[int], int, str]:
    """Numbers, target and solution: the target is the value of a random expression.

    Every step of the expression has a positive whole value, as in the game; the target is not one of the numbers.
    """
    while True:
        numbers = [rng.randint(1, _LARGEST_NUMBER) for _ in range(count)]
        terms: list[Term] = [(Fraction(number), str(number)) for number in numbers]
        while len(terms) > 1:
            left, right = (terms.pop(rng.randrange(len(terms))) for _ in range(2))
            whole = [item for item in _joined(left, right) if item[0] > 0 and item[0].denominator == 1]
            terms.append(rng.choice(whole))
        ((value, text),) = terms
        if value <= _LARGEST_TARGET and value not in numbers:
            return numbers, int(value), text


COUNTS = (3, 4, 5, 6)


def draw(rng: random.Random, counts: Sequence[int] = COUNTS) -> dict[str, Any]:
    """A random problem; `counts`: possible counts of numbers."""
    return countdown_fields(*random_problem(rng, rng.choice(counts))) | {"licence": "apache-2.0"}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("countdown", __doc__)
    procedural.add_limit(parser)
    parser.add_argument(
        "--numbers", type=int, nargs="+", choices=COUNTS, default=COUNTS, help="count of numbers, one of these"
    )
    options = parser.parse_args(arguments)
    counts = tuple(options.numbers)
    return run(
        "countdown",
        options,
        ("countdown",),
        lambda: procedural.drafts("countdown", lambda rng: draw(rng, counts), limit=options.limit, seed=options.seed),
    )


if __name__ == "__main__":
    sys.exit(main())
