"""Time vs. length on hostile texts, for every regular expression of rewards/ and every function that reads an answer.

`python -m benchmarks.rewards hostile` prints the time of the slowest text of each at three lengths and the fitted
exponent: 1 is linear. Only the slowest few texts at the shortest length are measured at the other lengths.
"""

import math
import time
from collections.abc import Callable, Iterator

import rewards
from benchmarks.answers.patterns import Used, hostile_texts, patterns_of
from rewards import extraction, guardrails
from rewards.analysis.imports import hides_code
from rewards.analysis.normal_form import MAX_CHARACTERS, normal_form
from rewards.analysis.parsing import parse
from rewards.guardrails import repeats_itself
from rewards.verifiers.answer_numbers import canonical, is_joined
from rewards.verifiers.gsm8k import last_number, marked_number

LENGTHS = (4_096, 16_384, 65_536)
_KEPT, _TIMES = 5, 3
# Seconds below which the clock is too coarse to measure growth.
_FLOOR = 1e-4

Read = Callable[[str], object]


def main() -> None:
    print(
        f"{'':44}"
        + "".join(f"{length:>12,}" for length in LENGTHS)
        + f"{'exponent':>10}   ms of processor time, slowest text"
    )
    for used in patterns_of(rewards):
        show(
            used.place.removeprefix("rewards."),
            reader(used),
            lambda length, used=used: hostile_texts(used.pattern, length),
        )
    for name, read in READERS.items():
        show(name, read, programs if name in OF_PROGRAMS else answers)


def show(name: str, read: Read, texts: Callable[[int], Iterator[str]]) -> None:
    """Print one line: the time of the slowest text at each length, and the exponent."""
    first = [seconds(read, text) for text in texts(LENGTHS[0])]
    slowest = sorted(range(len(first)), key=first.__getitem__)[-_KEPT:]
    best: list[list[float]] = []
    for length in LENGTHS:
        chosen = [text for place, text in enumerate(texts(length)) if place in slowest]
        best.append([min(seconds(read, text) for _ in range(_TIMES)) for text in chosen])
    worst = max(range(len(slowest)), key=lambda place: best[-1][place])
    times = [row[worst] for row in best]
    growth = max(times[-1], _FLOOR) / max(times[0], _FLOOR)
    exponent = math.log(growth) / math.log(LENGTHS[-1] / LENGTHS[0])
    print(f"{name:44}" + "".join(f"{1000 * one:>12.2f}" for one in times) + f"{exponent:>10.2f}", flush=True)


def seconds(read: Read, text: str) -> float:
    """Processor time of one call."""
    start = time.process_time()
    read(text)
    return time.process_time() - start


def reader(used: Used) -> Read:
    """The slowest method with which a pattern is used."""
    if used.searches:
        return lambda text: sum(1 for _ in used.pattern.finditer(text))
    return used.pattern.fullmatch if used.methods == ("fullmatch",) else used.pattern.match


def guard(text: str) -> object:
    """All guardrails, on a program that failed."""
    program = parse(text)
    shown = (["7"], ["11", "2"])
    return program and guardrails.of_program(program, ("gc",), correct=False, passed_inputs=shown)


READERS: dict[str, Read] = {
    "extraction.extract_block": lambda text: extraction.extract_block(text, "python"),
    "extraction.extract_last_line": extraction.extract_last_line,
    "extraction.after_thinking": extraction.after_thinking,
    "extraction.is_well_formed": extraction.is_well_formed,
    "repetition.repeats_itself": repeats_itself.__wrapped__,
    "gsm8k.marked_number": marked_number,
    "gsm8k.last_number": last_number,
    "answer_numbers.is_joined": lambda text: is_joined(text, 0),
    "answer_numbers.canonical": lambda text: canonical("1" * len(text)),
    "guardrails.of_program": guard,
    # Reached only by programs that have a normal form.
    f"hides_code ({MAX_CHARACTERS:,} characters at most)": lambda text: (
        len(text) <= MAX_CHARACTERS and hides_code(text)
    ),
    f"normal_form ({MAX_CHARACTERS:,} characters at most)": lambda text: normal_form(text, ["f"]),
}
OF_PROGRAMS = [name for name in READERS if name.startswith(("guardrails", "hides_code", "normal"))]

_ANSWERS = (
    "1",
    "1,234",
    ",234",
    "#### 1",
    "####",
    "```",
    "```python\n",
    "<think>",
    "</think>",
    "[1",
    " ",
    "\n",
    "-1",
    "1e9",
)
_PROGRAMS = (
    "x = 1\n",
    "x = x + 1\n",
    "f(x)\n",
    "if x == 7: x = 1\n",
    "exec('x' + 'y')\n",
    "[x for x in y]\n",
    "import a\n",
)


def answers(length: int) -> Iterator[str]:
    """Answers that repeat one piece."""
    for piece in _ANSWERS:
        for start in ("", "#### ", "```python\n"):
            yield start + piece * ((length - len(start)) // len(piece))


def programs(length: int) -> Iterator[str]:
    """Programs that repeat one statement, chain names, or nest as deeply as Python can parse."""
    for piece in _PROGRAMS:
        yield piece * (length // len(piece))
    count = length // 24
    yield (
        "a0 = ''\n"
        + "".join(f"a{place} = a{place - 1} + a{place - 1}\n" for place in range(1, count))
        + f"exec(a{count - 1})"
    )
    yield "x = " + "not " * min(2_000, length // 4) + "y\n" + "x = y\n" * (length // 12)
    yield "def f(y):\n" + " y = f(y)\n" * (length // 10)
