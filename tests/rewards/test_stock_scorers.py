"""Answers that verl's own scorers misjudge, side by side with ours (docs/reference/rewards.md)."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.agreements import stock
from benchmarks.stock_scorers import MAKERS, answers_of
from rewards import compute_score, verl_rows

pytestmark = pytest.mark.slow

_TESTS = json.dumps({"inputs": ["1\n", "5\n"], "outputs": ["2\n", "6\n"]})
_CALLS = json.dumps({"fn_name": "f", "inputs": ["1", "5"], "outputs": ["2", "6"]})
_EQUALS_ALL = """\
class Any(int):
    def __eq__(self, other):
        return True
    __hash__ = int.__hash__
def f(x):
    return Any(0)
"""
_NO_LOOPS = """\
import builtins
builtins.range = lambda *a: ()
builtins.zip = builtins.enumerate = lambda *a: []
def f(x):
    return 0
"""
_READS_TESTS = """\
import sys
frame = sys._getframe()
while "in_outs" not in frame.f_locals:
    frame = frame.f_back
print(frame.f_locals["in_outs"]["outputs"][frame.f_locals["index"]])
"""
# Whatever has "\\pi" is evaluated: this replaces a function of the scorer for all later answers (verl issue 7603).
_POISON = (
    "\\boxed{[exec(\"import sys;setattr(sys.modules['verl.utils.reward\\x5fscore.prime\\x5fmath'],"
    "'grade\\x5fanswer',lambda*a:True)\"),9][1]*1\\pi}"
)


@dataclass(frozen=True)
class Misjudged:
    """An answer, whether it is right, and what verl pays for it."""

    name: str
    source: str
    truth: str
    answer: str
    right: bool
    stock: float


ANSWERS = [
    Misjudged("a number", "openai/gsm8k", "42", "#### 42", True, 1.0),
    Misjudged("an expression", "openai/gsm8k", "42", "#### 42/2", False, 1.0),
    Misjudged("two numbers", "openai/gsm8k", "42", "#### 42 or 43", False, 1.0),
    Misjudged("text after it (verl PR 7274)", "openai/gsm8k", "42", "#### 42\n" + "So it is. " * 40, True, 0.0),
    Misjudged("a box", "lighteval/MATH", "42", "\\boxed{42}", True, 1.0),
    Misjudged("two numbers", "lighteval/MATH", "42", "\\boxed{42\\text{ or }43}", False, 1.0),
    Misjudged("an equal fraction", "lighteval/MATH", "42", "\\boxed{\\frac{84}{2}}", True, 0.0),
    Misjudged("another unit", "lighteval/MATH", "10\\text{ cm}", "\\boxed{10\\text{ cm}^2}", False, 1.0),
    Misjudged("only a bound", "lighteval/MATH", "42", "\\boxed{42\\text{ at least}}", False, 1.0),
    Misjudged("another choice", "lighteval/MATH", "C", "\\boxed{D = C}", False, 1.0),
    Misjudged("an answer line", "math_dapo", "42", "Answer: 42", True, 1.0),
    Misjudged("a false equation", "math_dapo", "42", "Answer: 41 = 42", False, 1.0),
    Misjudged("words between digits", "math_dapo", "42", "Answer: 4 ways 2", False, 1.0),
    Misjudged("a program", "taco", _TESTS, "print(int(input()) + 1)", True, 1.0),
    Misjudged("a program that reads its tests", "taco", _TESTS, _READS_TESTS, False, 1.0),
    Misjudged("a function", "taco", _CALLS, "def f(x):\n    return x + 1", True, 1.0),
    Misjudged("a value that equals all others", "taco", _CALLS, _EQUALS_ALL, False, 1.0),
    Misjudged("a program without loops", "taco", _CALLS, _NO_LOOPS, False, 1.0),
    Misjudged("a box", "numina_olympiads", "42", "\\boxed{42}", True, 1.0),
    Misjudged("another box", "numina_olympiads", "42", "\\boxed{41}", False, 0.0),
    Misjudged("another root", "numina_olympiads", "\\sqrt{2}", "\\boxed{\\sqrt[3]{2}}", False, 1.0),
    Misjudged("a number nearby", "numina_olympiads", "1000000", "\\boxed{1000001}", False, 1.0),
    Misjudged("a list of digits", "numina_olympiads", "1234", "\\boxed{1,2,3,4}", False, 1.0),
    Misjudged("what is not shown", "numina_olympiads", "42", "\\boxed{\\phantom{42}}", False, 1.0),
    Misjudged("poison", "numina_olympiads", "42", _POISON, False, 0.0),
    Misjudged("another box after poison", "numina_olympiads", "42", "\\boxed{41}", False, 1.0),
]


@pytest.mark.slow  # verl takes seconds to import
def test_verls_scorers_pay_for_wrong_answers(tmp_path: Path) -> None:
    jobs = "".join(json.dumps([one.source, one.answer, one.truth]) + "\n" for one in ANSWERS)
    run = subprocess.run(
        [sys.executable, stock.__file__], input=jobs, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    paid = [json.loads(line)[0] for line in run.stdout.splitlines()]
    # math_dapo pays -1 for a wrong answer.
    assert {(one.source, one.name): max(score, 0.0) for one, score in zip(ANSWERS, paid, strict=True)} == {
        (one.source, one.name): one.stock for one in ANSWERS
    }


@pytest.mark.parametrize("one", ANSWERS, ids=lambda one: f"{one.source}, {one.name}")
async def test_ours_pay_for_right_answers_only(one: Misjudged) -> None:
    verdict = await compute_score(one.source, one.answer, one.truth)
    assert verdict["error"] != "infrastructure"
    assert verdict["score"] == float(one.right)


@pytest.mark.parametrize("source", ["openai/gsm8k", "math_dapo"])
async def test_clean_answers_get_what_they_deserve(source: str) -> None:
    answers = answers_of(source, 300, seed=1)
    assert answers == answers_of(source, 300, seed=1) != answers_of(source, 300, seed=2)
    scores = [(await compute_score(source, one.text, one.truth))["score"] for one in answers]
    assert [one for one, score in zip(answers, scores, strict=True) if score != one.right] == []
    assert 0.3 < sum(one.right for one in answers) / len(answers) < 0.7


@pytest.mark.parametrize("source", ["codecontests", "taco"])
async def test_clean_programs_get_the_share_that_they_pass(source: str) -> None:
    answers = answers_of(source, 25, seed=1)
    scores = [(await compute_score(source, one.text, one.truth))["score"] for one in answers]
    assert scores == pytest.approx([one.right for one in answers])
    assert {0.0, 1.0} <= set(scores)


def test_every_maker_is_of_a_source_that_we_judge() -> None:
    assert all(verl_rows.verifier_of(source) for source in MAKERS)
