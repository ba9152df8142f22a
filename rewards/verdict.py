"""Verdict: a verifier's judgement of one answer."""

import math
from dataclasses import dataclass
from typing import Literal

ErrorKind = Literal["none", "extract", "syntax", "runtime", "timeout", "wrong_answer", "infeasible", "infrastructure"]
# Signs of reward hacking (rewards/guardrails.py).
GuardKind = Literal["none", "length", "repetition", "forbidden_import", "special_casing", "empty", "constant"]


@dataclass(frozen=True)
class Verdict:
    """The judgement of one answer.

    score: the reward, in [0, 1] unless the run's shape has another range (rewards/shapes.py); NaN if the answer could
        not be judged.
    correct: whether the answer solves the problem completely.
    well_formed: whether the answer has the requested form (it parses), right or wrong.
    error: why the answer is not (completely) right.
    pass_ratio: share of the tests passed, in [0, 1].
    feasible: whether the answer satisfies the constraints of its problem, optimal or not; None: the task has no such
        notion, and a correct answer counts as feasible.
    quality: how close the answer is to the optimum, in [0, 1]; None: the task has no such notion, and the pass ratio
        is reported.
    guard: the sign of reward hacking that was detected, punished or not.
    repeats: whether the response repeats itself (rewards/guardrails.py).
    visible: whether the answer passes all tests that the prompt shows, refused or not; None: the prompt shows none, and
        `correct` is reported.
    """

    score: float
    correct: bool
    well_formed: bool
    error: ErrorKind
    pass_ratio: float
    feasible: bool | None = None
    quality: float | None = None
    guard: GuardKind = "none"
    repeats: bool = False
    visible: bool | None = None

    @classmethod
    def of_ratio(
        cls,
        ratio: float,
        error: ErrorKind = "wrong_answer",
        *,
        partial_credit: bool = True,
        guard: GuardKind = "none",
    ) -> "Verdict":
        """A well-formed answer that passed this share of its tests; `error` names the first failure, if any."""
        correct = ratio == 1.0
        score = ratio if partial_credit else float(correct)
        return cls(score, correct, True, "none" if correct else error, ratio, guard=guard)

    @classmethod
    def failed(cls, error: ErrorKind, *, well_formed: bool = False) -> "Verdict":
        """An answer that scores 0, for the given reason."""
        return cls(0.0, False, well_formed, error, 0.0)

    @classmethod
    def not_judged(cls) -> "Verdict":
        """No judgement, because the infrastructure failed: never a reward, the sample must be masked."""
        return cls(math.nan, False, False, "infrastructure", math.nan)

    def as_reward(self, judge_seconds: float = 0.0, busy_seconds: float = 0.0) -> dict[str, float | str]:
        """The dictionary that verl's reward manager reads; the same keys for every task and on every path.

        judge_seconds: wall time of the judgement. busy_seconds: time of sandbox workers, without waiting for one.
        """
        return {
            "score": self.score,
            "acc": float(self.correct),
            "visible_acc": float(self.correct if self.visible is None else self.visible),
            "format": float(self.well_formed),
            "error": self.error,
            "pass_ratio": self.pass_ratio,
            "feasible": float(self.correct if self.feasible is None else self.feasible),
            "quality": self.pass_ratio if self.quality is None else self.quality,
            "repeat": float(self.repeats),
            "guard": self.guard,
            "judge_seconds": judge_seconds,
            "busy_seconds": busy_seconds,
        }
