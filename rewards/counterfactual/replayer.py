"""Replays of changed solutions by the verifier or the policy, and the count of their outcomes."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from itertools import takewhile
from operator import eq
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from rewards.counterfactual.interventions import WrittenSolution

Array = NDArray[np.float64]
# Outcomes of more tests are not kept: they would cost more memory than they are worth.
MAX_TESTS = 256


class TimedOut(Exception):
    """A changed solution hit a time limit that the solution itself did not, so its score is unknown."""


class ExecutedProgram(NamedTuple):
    """A program as it was run, and the statements that some test executed, counted in the order of the text."""

    code: str
    statements: frozenset[int]


class Outcome(NamedTuple):
    """The verifier's judgement of a solution: R in [0, 1], NaN if it could not be judged; which tests passed, if known.

    The share of tests passed is R; otherwise they do not count as known. executed: None if it was not measured.
    """

    score: float
    tests: tuple[bool, ...] = ()
    executed: ExecutedProgram | None = None

    def agrees(self, other: "Outcome") -> bool:
        """Whether two runs of a solution had the same result, test by test if both know their tests."""
        alike = len(self.tests) != len(other.tests) or self.tests == other.tests
        return self.score == other.score and alike

    def all_or_nothing(self) -> "Outcome":
        """R 1 if every test passed, else 0; without single tests, of which that is no mean."""
        return self._replace(score=self.score if math.isnan(self.score) else float(self.score >= 1.0), tests=())

    def vector(self, tests: int) -> Array:
        """R and the outcomes of that many tests, 1.0 for one that passed; NaN for those that are not known."""
        if len(self.tests) == tests:
            return np.array([self.score, *self.tests], dtype=np.float64)
        each = self.score if self.score in (0.0, 1.0) else math.nan
        return np.array([self.score, *[each] * tests], dtype=np.float64)


UNKNOWN, TIMED_OUT = Outcome(math.nan), Outcome(math.nan, ())


Extent = Literal["step", "cut", "several"]


class Replay(NamedTuple):
    """A replay as a reader looks at it.

    change: one step is changed, or all from one on, or others. step: that step, or -1. without: lines of the solution,
    in the layout of its replays, that the replay lacks; instead: what stands in their place. score: R. tests: "1" for
    each that passed and "0" for others, if they are known and at most `MOST_TESTS`. cause: why it has no score, or "".
    """

    change: Extent
    step: int
    without: str
    instead: str
    score: float
    tests: str
    cause: str


LONGEST, MOST, MOST_TESTS = 500, 32, 64
"""Characters of each text of a `Replay`, replays that a sample keeps, and tests of each."""


def changed_lines(solution: WrittenSolution, changed: WrittenSolution) -> tuple[str, str]:
    """The lines of a solution, or actions of an agent, from the first to the last that a replay changes, and what
    stands in their place; each at most `LONGEST` characters, and half a character as its number."""
    old, new = (text.splitlines() if isinstance(text, str) else list(text) for text in (solution, changed))
    before = sum(takewhile(bool, map(eq, old, new)))
    after = sum(takewhile(bool, map(eq, reversed(old[before:]), reversed(new[before:]))))
    cut, put = ("\n".join(lines[before : len(lines) - after]) for lines in (old, new))
    return _short(cut), _short(put)


def _short(text: str) -> str:
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


# Judges a changed solution. May raise `TimedOut`. With unit "turn" it gets the remaining actions, for replay in a fresh
# environment.
Verify = Callable[[Any], Awaitable[float | Outcome]]
# The solution up to this character, with a new continuation by the policy.
Resume = Callable[[int], Awaitable[str]]


class Replayer:
    """Passes changed solutions to the verifier and counts the outcomes.

    asked: replays that the plan required. invalid: those without a valid program. unjudged: those that the verifier
    could not judge. timeouts: those over their time limit. judged: those that were passed to the verifier. tests:
    number of tests in the vectors, set once the solution's own are known. written, rewritten: the solution, and in the
    layout of its replays, set with its reference. measure: a verifier that also reports the statements that were
    executed. judge_new: a verifier of continuations, which are answers of their own. all_or_nothing: as in `Plan`.
    """

    def __init__(
        self,
        verify: Verify,
        resume: Resume | None = None,
        measure: Verify | None = None,
        judge_new: Verify | None = None,
        *,
        all_or_nothing: bool = False,
    ):
        self.verify = verify
        self.judge_new = judge_new or verify
        self.written: WrittenSolution = ""
        self.rewritten: WrittenSolution = ""
        self.measure = measure or verify
        self.resume = resume
        self.tests = 0
        self.all_or_nothing = all_or_nothing
        self._replays: list[Replay] = []
        self.asked = self.invalid = self.unjudged = self.timeouts = self.judged = 0

    async def outcome(
        self,
        changed: WrittenSolution | None,
        *,
        fresh: bool = False,
        measured: bool = False,
        continued: bool = False,
    ) -> Outcome:
        """The outcome of a changed solution; unknown if it is None, could not be judged, or hit its time limit.

        fresh: a run of the solution itself, which does not count. measured: with the statements that it executed.
        continued: an answer of the policy.
        """
        self.asked += not fresh
        if changed is None:
            self.invalid += 1
            return UNKNOWN
        self.judged += not fresh
        try:
            judge = self.measure if measured else self.judge_new if continued else self.verify
            value = await judge(changed)
        except TimedOut:
            self.timeouts += 1
            return TIMED_OUT
        except Exception:
            value = UNKNOWN
        outcome = value if isinstance(value, Outcome) else Outcome(value)
        if not math.isfinite(outcome.score):
            self.unjudged += 1
            return UNKNOWN
        return outcome

    def counted(self, outcome: Outcome) -> Outcome:
        """The outcome as credits count it."""
        return outcome.all_or_nothing() if self.all_or_nothing else outcome

    async def score(
        self, changed: WrittenSolution | None, change: Extent = "several", step: int = -1, *, continued: bool = False
    ) -> Array:
        """(1 + tests,): R of a changed solution, and which tests it passed. change, step: as in `Replay`; continued:
        whether it begins as the policy wrote it.
        """
        outcome = await self.outcome(changed, continued=continued)
        cause = "no valid program" if changed is None else "time limit" if outcome is TIMED_OUT else "not judged"
        lines = ("", "") if changed is None else changed_lines(self.written if continued else self.rewritten, changed)
        known = "".join(str(int(passed)) for passed in outcome.tests) if len(outcome.tests) <= MOST_TESTS else ""
        found = Replay(change, step, *lines, outcome.score, known, "" if math.isfinite(outcome.score) else cause)
        self._replays.append(found)
        return self.counted(outcome).vector(self.tests)

    def replays(self) -> list[Replay]:
        """At most `MOST` replays, those of single steps first, in an order that does not depend on when they ended."""
        kinds = get_args(Extent)
        return sorted(self._replays, key=lambda one: (kinds.index(one.change), one.step, *map(str, one[2:])))[:MOST]

    async def value(self, cut: int, continuations: int, step: int = -1) -> Array:
        """(1 + tests,): V of the solution up to this character, the mean over the judged continuations; NaN if none.
        step: the one that begins there.
        """
        scores = await asyncio.gather(*(self._continued(cut, step) for _ in range(continuations)))
        judged = [score for score in scores if math.isfinite(score[0])]
        return np.mean(judged, axis=0) if judged else UNKNOWN.vector(self.tests)

    async def _continued(self, cut: int, step: int) -> Array:
        if self.resume is None:
            raise ValueError("method 'resample' needs the argument `resume`, the policy that continues a prefix")
        try:
            text = await self.resume(cut)
        except Exception:  # a failure of the engine is no evidence about the step
            self.asked += 1
            self.judged += 1
            self.unjudged += 1
            return UNKNOWN.vector(self.tests)
        return await self.score(text, "cut", step, continued=True)
