"""Makes arithmetic word problems: `python -m data_prep.arithmetic --out DIR [--steps 2 3 4 5]`.

Judged as GSM8K is (verifier `gsm8k`), with its instruction, so that one model can be asked for both.
"""

import random
import sys
from collections.abc import Sequence
from typing import Any

from data_prep import procedural
from data_prep.arithmetic_stories import random_story
from data_prep.gsm8k import INSTRUCTION
from data_prep.source import positive, run, source_parser

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
    parser.add_argument("--steps", type=positive, nargs="+", default=STEPS, help="of a story, as they come")
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
