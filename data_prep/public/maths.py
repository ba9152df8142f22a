"""Test sets of mathematics: `python -m data_prep.public.maths --set NAME --out DIR`. Ground truth of verifier `latex`.

AIME 2024 and 2025, MATH-500, Minerva, Gaokao 2023 (English), ASDiv. For testing only.
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from data_prep.sources import hub
from data_prep.sources.hub import PublicSet
from data_prep.sources.source import source_parser

_INSTRUCTION = "Reason step by step and put the final answer in \\boxed{}."


# Repository, commit, split, columns (the last is the answer, those before are the problem) and licence of each set.
_SETS: dict[str, tuple[str, str, str, tuple[str, ...], str]] = {
    "aime24": (
        *("Maxwell-Jia/AIME_2024", "8d88b2876a82a080e2f172cc9b25d0d9d2cb4792"),
        *("train", ("Problem", "Answer"), "mit"),
    ),
    "aime25": (
        *("math-ai/aime25", "563bb8404243c5f09de6ec262f2db674fe5bce9b"),
        *("test", ("problem", "answer"), "apache-2.0"),
    ),
    "math500": (
        *("HuggingFaceH4/MATH-500", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be"),
        *("test", ("problem", "answer"), "none given"),
    ),
    "minerva": (
        *("math-ai/minervamath", "ee46ddc498933b1977577953250ca5c66be64f96"),
        *("test", ("question", "answer"), "none given"),
    ),
    "gaokao2023en": (
        *("MARIO-Math-Reasoning/Gaokao2023-Math-En", "6c7bdecd205ed623b5e6c92335deb4f13a7cdd9b"),
        *("train", ("question", "answer"), "mit"),
    ),
    "asdiv": (
        *("EleutherAI/asdiv", "8f95807222d87b4c688c3c22a6ba2801e1fa03e2"),
        *("validation", ("body", "question", "answer"), "cc-by-nc-4.0"),
    ),
}
SETS = {
    name: PublicSet(name, repository, None, (split,), columns, revision, licence)
    for name, (repository, revision, split, columns, licence) in _SETS.items()
}


def convert(record: dict[str, Any], split: str, index: int, *, public: PublicSet) -> dict[str, Any]:
    """The task of a record; its solution is the answer alone, which proves that the verifier accepts it."""
    if missing := [column for column in public.columns if record[column] is None]:
        raise ValueError(f"no {missing[0]!r}")
    *problem, answer = (str(record[column]).strip() for column in public.columns)
    if public.name == "asdiv":
        if ";" in answer:
            raise ValueError("several answers")
        answer = answer.partition(" (")[0]  # 9 (apples)
    answer = answer.strip("$").strip()
    return {
        "id": f"{public.name}/{index}",
        "source": public.name,
        "split": "test",
        "role": "test",
        "skill": public.name,
        "verifier": "latex",
        "prompt": f"{' '.join(problem)}\n{_INSTRUCTION}",
        "ground_truth": {"answer": answer},
        "solution": f"\\boxed{{{answer}}}",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = source_parser("maths", __doc__)
    parser.add_argument("--set", required=True, choices=SETS)
    hub.add_options(parser, sorted({split for public in SETS.values() for split in public.splits}))
    options = parser.parse_args(arguments)
    public = SETS[options.set]
    return hub.make(public, options, partial(convert, public=public), "latex", module="maths")


if __name__ == "__main__":
    sys.exit(main())
