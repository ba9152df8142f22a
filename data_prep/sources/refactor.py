"""Refactoring tasks: `python -m data_prep.sources.refactor --out DIR [--levels 1 2 3]`.

The prompt shows a correct program with needless complexity; the answer does the same in at most half of its statements.
Hidden tests distinguish the program from all that differ in one comparison, operator or number, or in the fold.

A `Pipeline` filters and maps the items of a list and folds the rest into one value. The plain version is one
comprehension; the bad version has a loop per step, with superfluous indices, flags and variables.
"""

import ast
import operator
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from data_prep.sources import procedural
from data_prep.sources.source import run, source_parser
from rewards.verifiers.refactor import RefactorTruth, statements

FoldValue = int | list[int]

_CHANGES: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "!=": operator.ne,
}
_CONSTANTS, _BOUNDS, _ITEMS = range(2, 10), range(-3, 16), range(-9, 25)
_LISTS = 200


@dataclass(frozen=True)
class ItemStep:
    """`x sign number`: a condition on an item, or a new value for it."""

    sign: str
    number: int

    @property
    def keeps(self) -> bool:
        """Whether this step is a condition."""
        return self.sign in _COMPARISONS

    def source(self, item: str) -> str:
        """The expression for this item."""
        return f"{item} {self.sign} {self.number}"

    def of(self, values: list[int]) -> list[int]:
        """The items after this step."""
        if self.keeps:
            return [value for value in values if _COMPARISONS[self.sign](value, self.number)]
        return [_CHANGES[self.sign](value, self.number) for value in values]

    def neighbours(self) -> Iterator["ItemStep"]:
        """The steps of the same kind that differ in the sign, or by one in the number."""
        signs = _COMPARISONS if self.keeps else _CHANGES
        yield from (replace(self, sign=sign) for sign in signs if sign != self.sign)
        yield from (replace(self, number=self.number + by) for by in (-1, 1))


@dataclass(frozen=True)
class Fold:
    """The final value of the items: the plain expression over a generator, and the loop that computes the same."""

    value: Callable[[list[int]], FoldValue]
    plain: str
    start: str
    loop: Sequence[str]


FOLDS = {
    "list": Fold(list, "[{}]", "[]", ["result.append(item)"]),
    "sum": Fold(sum, "sum([{}])", "0", ["result = result + item"]),
    "count": Fold(len, "len([{}])", "0", ["result = result + 1"]),
    "largest": Fold(
        lambda values: max(values, default=0),
        "max(({}), default=0)",
        "None",
        ["if result is None or item > result:", "    result = item"],
    ),
    "smallest": Fold(
        lambda values: min(values, default=0),
        "min(({}), default=0)",
        "None",
        ["if result is None or item < result:", "    result = item"],
    ),
}


@dataclass(frozen=True)
class Pipeline:
    """A function `f(values)`: steps, then a fold (a name of FOLDS)."""

    steps: tuple[ItemStep, ...]
    fold: str

    def returns(self, values: list[int]) -> FoldValue:
        """The function's result for these values."""
        for step in self.steps:
            values = step.of(values)
        return FOLDS[self.fold].value(values)

    def neighbours(self) -> Iterator["Pipeline"]:
        """The functions that differ in one step or in the fold."""
        for place, step in enumerate(self.steps):
            for other in step.neighbours():
                yield replace(self, steps=(*self.steps[:place], other, *self.steps[place + 1 :]))
        yield from (replace(self, fold=other) for other in FOLDS if other != self.fold)

    def plain(self) -> str:
        """The function as one comprehension."""
        item, conditions = "item", []
        for step in self.steps:
            if step.keeps:
                conditions.append(step.source(item))
            else:
                item = f"({step.source(item)})"
        chosen = f"{item} for item in values" + (f" if {' and '.join(conditions)}" if conditions else "")
        # Parsing and unparsing removes unnecessary parentheses.
        return ast.unparse(ast.parse(f"def f(values):\n    return {FOLDS[self.fold].plain.format(chosen)}"))

    def needless(self, rng: random.Random) -> str:
        """The function with a loop per step, each complicated in a random way."""
        lines, source = [], "values"
        for number, step in enumerate(self.steps, 1):
            target = f"step_{number}"
            body = _kept(rng, step, target) if step.keeps else _changed(rng, step, target)
            lines += [f"{target} = []", *_loop(rng, source, body)]
            source = target
        fold = FOLDS[self.fold]
        lines += [f"result = {fold.start}", *_loop(rng, source, fold.loop)]
        if fold.start == "None":
            lines += ["if result is None:", "    result = 0"]
        lines += rng.choice([["return result"], ["answer = result", "return answer"]])
        return "\n".join(["def f(values):", *_indented(lines)])


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _loop(rng: random.Random, source: str, body: Sequence[str]) -> list[str]:
    """A loop over the items of a list."""
    indexed = [f"item = {source}[index]", *body]
    return rng.choice(
        [
            ["index = 0", f"while index < len({source}):", *_indented([*indexed, "index = index + 1"])],
            [f"for index in range(0, len({source})):", *_indented(indexed)],
            [f"copy = list({source})", "for item in copy:", *_indented(body)],
        ]
    )


def _kept(rng: random.Random, step: ItemStep, target: str) -> list[str]:
    """Lines that append an item to the target if it meets the condition."""
    condition, add = step.source("item"), f"{target}.append(item)"
    return rng.choice(
        [
            [f"if ({condition}) == True:", f"    {add}", "else:", "    pass"],
            [f"if not ({condition}):", "    keep = False", "else:", "    keep = True", "if keep:", f"    {add}"],
            [f"good = {condition}", "if good is True:", "    if good:", f"        {add}"],
            [f"if not (not {condition}):", f"    {add}"],
        ]
    )


def _changed(rng: random.Random, step: ItemStep, target: str) -> list[str]:
    """Lines that append the new value of an item to the target."""
    change = step.source("item")
    return rng.choice(
        [
            [f"changed = {change}", f"{target}.append(changed)"],
            [f"other = {step.number}", f"changed = item {step.sign} other", f"{target} = {target} + [changed]"],
            [f"{target}.append(0)", f"{target}[len({target}) - 1] = {change}"],
        ]
    )


def random_pipeline(rng: random.Random, steps: int) -> tuple[Pipeline, list[list[int]]]:
    """A function with this number of steps, and lists that distinguish it from every neighbour, so that every part
    of it matters.
    """
    while True:
        pipeline = Pipeline(tuple(_random_step(rng) for _ in range(steps)), rng.choice(list(FOLDS)))
        if lists := _distinguishing_lists(rng, pipeline):
            return pipeline, lists


def _random_step(rng: random.Random) -> ItemStep:
    if rng.random() < 0.5:
        return ItemStep(rng.choice(list(_COMPARISONS)), rng.choice(_BOUNDS))
    return ItemStep(rng.choice(list(_CHANGES)), rng.choice(_CONSTANTS))


def _distinguishing_lists(rng: random.Random, pipeline: Pipeline) -> list[list[int]]:
    """The empty list and others, until each neighbour has a wrong result for one of them; [] if that fails."""
    lists: list[list[int]] = [[]]
    alike = list(pipeline.neighbours())
    for _ in range(_LISTS):
        values = rng.choices(_ITEMS, k=rng.randint(1, 5))
        left = [other for other in alike if other.returns(values) == pipeline.returns(values)]
        if len(left) < len(alike):
            lists.append(values)
            alike = left
        if not alike:
            return lists
    return []


# The number of steps of the program; each is a loop in the prompt.
LEVELS = (1, 2, 3)


def draw(rng: random.Random, levels: Sequence[int] = LEVELS) -> dict[str, Any]:
    """A random problem of one of these levels."""
    level = rng.choice(levels)
    pipeline, lists = random_pipeline(rng, level)
    original = pipeline.needless(rng)
    most = statements(original) // 2
    truth = RefactorTruth(
        tests=[f"assert f({values}) == {pipeline.returns(values)}" for values in lists],
        original=original,
        max_statements=most,
    )
    return {
        "skill": "refactor",
        "verifier": "refactor",
        "prompt": (
            f"This program works, but it is needlessly complicated:\n```python\n{original}\n```\nWrite it again so "
            f"that it does the same in at most {most} statements (`def` and `return` count), one on a line. Answer "
            "with the whole program in one Python code block."
        ),
        "ground_truth": truth.model_dump(),
        "solution": pipeline.plain(),
        "licence": "apache-2.0",
        "notes": {"level": level},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("refactor", __doc__)
    procedural.add_limit(parser)
    parser.add_argument("--levels", type=int, nargs="+", choices=LEVELS, default=LEVELS)
    options = parser.parse_args(arguments)
    one = partial(draw, levels=tuple(options.levels))
    return run(
        "refactor",
        options,
        ("refactor",),
        # All bad versions of one function belong to one split.
        lambda: procedural.drafts("refactor", one, limit=options.limit, seed=options.seed, split_by="solution"),
    )


if __name__ == "__main__":
    sys.exit(main())
