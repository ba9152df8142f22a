"""Agreement with verl's own scorers on answers without tricks, and seconds per answer of both.

    python -m benchmarks.stock_scorers --answers 1000 --out DIR
    python -m benchmarks.stock_scorers --answers 100 --sources math_dapo taco

Prints a table per source, and every kind of answer on which the two differ with the scorer that is wrong. DIR keeps
all verdicts as JSON Lines. verl's scorers run in a separate process that is stopped after --limit seconds for one
answer. Sources of one verifier of ours that have equal answers are judged once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles

from rich.console import Console
from rich.table import Table

from benchmarks.agreements import stock
from benchmarks.agreements.clean_answers import CleanAnswer, gsm8k, mathematics
from benchmarks.agreements.clean_programs import program
from rewards import compute_score

MAKERS: dict[str, Callable[[random.Random], CleanAnswer]] = {
    "openai/gsm8k": gsm8k,
    "lighteval/MATH": lambda rng: mathematics("lighteval/MATH", rng),
    "numina_olympiads": lambda rng: mathematics("numina_olympiads", rng),
    "math_dapo": lambda rng: mathematics("math_dapo", rng),
    "codecontests": lambda rng: program("codecontests", rng, calls=False),
    "taco": lambda rng: program("taco", rng, calls=True),
}


@dataclass(frozen=True)
class TimedScore:
    """A score and the seconds that it took; None: no score within the limit, or masked."""

    score: float | None
    seconds: float

    def is_right(self, answer: CleanAnswer) -> bool:
        """Whether it is the score that the answer deserves."""
        return self.score is not None and abs(self.score - answer.right) < 1e-6


def answers_of(source: str, count: int, seed: int) -> list[CleanAnswer]:
    """The first `count` answers of a source; lighteval/MATH and numina_olympiads have equal ones."""
    return [MAKERS[source](random.Random(f"{seed}/{number}")) for number in range(count)]


async def by_verl(answers: Sequence[CleanAnswer], limit: float) -> list[TimedScore]:
    """verl's scores, each within `limit` seconds."""
    found: list[TimedScore] = []
    while len(found) < len(answers):
        scorer = await asyncio.create_subprocess_exec(
            sys.executable, stock.__file__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert scorer.stdin is not None
        assert scorer.stdout is not None
        try:
            # The first one pays for the imports, and is called again.
            first = len(found)
            for answer in [answers[first], *answers[first:]]:
                scorer.stdin.write(json.dumps([answer.source, answer.text, answer.truth]).encode() + b"\n")
                started = time.perf_counter()
                line = await asyncio.wait_for(scorer.stdout.readline(), limit if len(found) > first else limit + 600)
                if not line:
                    raise RuntimeError(f"verl's scorer ended at {answer}")
                score, seconds = json.loads(line)
                # math_dapo pays -1 for a wrong answer.
                found.append(TimedScore(max(score, 0.0), seconds))
            found.pop(first)
        except TimeoutError:
            found = [*found[:first], *found[first + 1 :], TimedScore(None, time.perf_counter() - started)]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(scorer.pid, signal.SIGKILL)
            await scorer.wait()
    return found


async def by_us(answers: Sequence[CleanAnswer], sandbox_url: str | None) -> list[TimedScore]:
    """Our scores, one answer at a time."""
    found = []
    for answer in answers:
        started = time.perf_counter()
        verdict = await compute_score(answer.source, answer.text, answer.truth, sandbox_url=sandbox_url)
        masked = verdict["error"] == "infrastructure"
        found.append(TimedScore(None if masked else float(verdict["score"]), time.perf_counter() - started))
    return found


def spread(judged: Sequence[TimedScore]) -> str:
    """Median milliseconds with the 10th and 90th percentile."""
    times = [one.seconds * 1000 for one in judged]
    tenths = quantiles(times, n=10)
    return f"{median(times):.3g} ({tenths[0]:.3g}-{tenths[-1]:.3g})"


def reported(
    table: Table, answers: Sequence[CleanAnswer], theirs: Sequence[TimedScore], ours: Sequence[TimedScore]
) -> str:
    """Add the row of a source to the table; returns the kinds of differences."""
    rows = list(zip(answers, theirs, ours, strict=True))
    judged = [(answer, (first, second)) for answer, first, second in rows]
    equal = sum(a.score is not None and b.score is not None and abs(a.score - b.score) < 1e-6 for _, a, b in rows)
    table.add_row(
        answers[0].source, str(len(rows)), f"{equal / len(rows):.1%}",
        *(str(sum(not scores[side].is_right(answer) for answer, scores in judged)) for side in (0, 1)),
        spread(theirs), spread(ours),
    )  # fmt: skip
    wrong: Counter[tuple[str, str, bool, bool]] = Counter(
        (a.source, a.kind, not b.is_right(a), not c.is_right(a)) for a, b, c in rows
    )
    marks = {True: "wrong", False: "right"}
    return "\n".join(
        f"{source}, {kind}: {count}, verl {marks[verl]}, ours {marks[own]}"
        for (source, kind, verl, own), count in sorted(wrong.items()) if verl or own
    )  # fmt: skip


async def compared(options: argparse.Namespace) -> None:
    """Judge the answers of every source, print tables, keep the verdicts."""
    table = Table("source", "answers", "equal", "verl wrong", "ours wrong", "verl, ms", "ours, ms")
    kinds, known = [], dict[tuple[str, str], TimedScore]()
    for source in options.sources:
        answers = answers_of(source, options.answers, options.seed)
        theirs = await by_verl(answers, options.limit)
        new = [one for one in answers if (one.text, one.truth) not in known]
        known |= {
            (one.text, one.truth): found for one, found in zip(new, await by_us(new, options.sandbox_url), strict=True)
        }
        ours = [known[one.text, one.truth] for one in answers]
        kinds.append(reported(table, answers, theirs, ours))
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(asdict(one) | {"verl": asdict(a), "ours": asdict(b)})
                     for one, a, b in zip(answers, theirs, ours, strict=True)]  # fmt: skip
            (options.out / f"{source.replace('/', '_')}.jsonl").write_text("\n".join(lines) + "\n")
        print(f"{source}: done", file=sys.stderr, flush=True)
    Console().print(table)
    print("\n".join(filter(None, kinds)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=1000, help="per source")
    parser.add_argument("--sources", nargs="+", choices=MAKERS, default=list(MAKERS), metavar="SOURCE")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one answer")
    parser.add_argument("--sandbox-url", help="of a running server; default: one is started")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    asyncio.run(compared(parser.parse_args()))


if __name__ == "__main__":
    main()
