"""Arithmetic word problems: `python -m data_prep.sources.arithmetic --out DIR [--steps 2 3 4 5]`.

A problem is a short story of steps that each change a count. It has the verifier (`gsm8k`) and the instruction of
GSM8K, so that one model can be trained and tested on both.
"""

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from data_prep.sources import procedural
from data_prep.sources.gsm8k import INSTRUCTION
from data_prep.sources.source import positive, run, source_parser

_NAMES = ("Ada", "Bruno", "Chidi", "Dana", "Emre", "Fatima", "Goran", "Hana", "Ines", "Jonas", "Kofi", "Lena")
_THINGS = ("apples", "books", "cards", "coins", "pencils", "stamps", "marbles", "tickets", "shells", "stickers")


@dataclass(frozen=True)
class ArithmeticStory:
    """A story with its question, its solution in sentences (the last line is `#### answer`), and the answer."""

    text: str
    solution: str
    answer: int


# A step: the sentence, the calculation and the new number. Makers return None if the step does not suit the number.
StoryStep = tuple[str, str, int]


def _gain(rng: random.Random, name: str, things: str, number: int) -> StoryStep | None:
    more = rng.randint(2, 40)
    return f"{name} finds {more} more {things}.", f"{number} + {more}", number + more


def _loss(rng: random.Random, name: str, things: str, number: int) -> StoryStep | None:
    if number < 4:
        return None
    less = rng.randint(2, number - 1)
    return f"{name} gives away {less} {things}.", f"{number} - {less}", number - less


def _growth(rng: random.Random, name: str, things: str, number: int) -> StoryStep | None:
    factor = rng.randint(2, 6)
    if number * factor > 2000:
        return None
    return f"Then {name} gets {factor} times as many {things}.", f"{number} * {factor}", number * factor


def _sharing(rng: random.Random, name: str, things: str, number: int) -> StoryStep | None:
    people = [count for count in range(2, 10) if number % count == 0 and number > count]
    if not people:
        return None
    count = rng.choice(people)
    sentence = f"{name} shares the {things} equally among {count} people, {name} being one, and keeps that share."
    return sentence, f"{number} / {count}", number // count


_STEPS: tuple[Callable[[random.Random, str, str, int], StoryStep | None], ...] = (_gain, _loss, _growth, _sharing)


def random_story(rng: random.Random, steps: int) -> ArithmeticStory:
    """A story of `steps` steps; all intermediate numbers are positive and whole."""
    name, things, number = rng.choice(_NAMES), rng.choice(_THINGS), rng.randint(3, 60)
    sentences = [f"{name} has {number} {things}."]
    lines: list[str] = []
    while len(lines) < steps:
        if (step := rng.choice(_STEPS)(rng, name, things, number)) is not None:
            sentence, calculation, number = step
            sentences.append(sentence)
            lines.append(f"{sentence} {calculation} = {number}")
    sentences.append(f"How many {things} does {name} have in the end?")
    return ArithmeticStory(" ".join(sentences), "\n".join([*lines, f"#### {number}"]), number)


STEPS = (2, 3, 4, 5)


def draw(rng: random.Random, steps: Sequence[int] = STEPS) -> dict[str, Any]:
    """A random problem with one of these numbers of steps."""
    count = rng.choice(steps)
    story = random_story(rng, count)
    return {
        "skill": "arithmetic",
        "verifier": "gsm8k",
        "prompt": f"{story.text} {INSTRUCTION}",
        "ground_truth": {"answer": str(story.answer)},
        "solution": story.solution,
        "licence": "apache-2.0",
        "notes": {"level": count},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("arithmetic", __doc__)
    procedural.add_limit(parser)
    parser.add_argument("--steps", type=positive, nargs="+", default=STEPS, help="numbers of steps per story")
    options = parser.parse_args(arguments)
    steps = tuple(options.steps)
    return run(
        "arithmetic",
        options,
        ("gsm8k",),
        lambda: procedural.drafts("arithmetic", lambda rng: draw(rng, steps), limit=options.limit, seed=options.seed),
    )


if __name__ == "__main__":
    sys.exit(main())
