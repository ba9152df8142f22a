"""Counterfactual replay: credits of steps from the verifier's score of a solution with one step changed.

With R the verifier's score in [0, 1], tau the solution and t = 1..T its steps (tau in the layout of its replays, since
a verifier may depend on layout):

    delete, replace   c_t = R(tau) - R(tau with step t changed)
    truncate          c_t = R(tau up to t) - R(tau up to t-1); the credits add up to R(tau) - R(nothing)
    shapley           mean gain of step t over sampled orders; the credits add up to R(tau) - R(nothing)
    resample          c_t = V(tau up to t) - V(tau up to t-1), V the mean R of the policy's continuations of a prefix

Estimand: except with `resample` the suffix is unchanged, so a credit is the step's direct effect (a plan or a comment
has none). `resample` measures the total effect, which includes the step's effect on everything after it.

Sources: Shapley, "A value for n-person games" (1953); Kazemnejad et al., "VinePPO" (arXiv 2410.01679), for the value
of a prefix by its continuations; ../docs/reference/credit.md for the choice between them.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, get_args

from rewards.counterfactual.interventions import Edits, ProgramEdits, Solution, TurnEdits
from rewards.counterfactual.segments import UNITS, NoSteps, Step, Unit, segment

Method = Literal["delete", "truncate", "replace", "shapley", "resample"]
METHODS: tuple[Method, ...] = get_args(Method)
Choice = Literal["longest", "uniform"]
CHOICES: tuple[Choice, ...] = get_args(Choice)


class TimedOut(Exception):
    """A changed solution hit a time limit that the solution itself did not, so its score is unknown."""


# The score of a changed solution in [0, 1]; NaN if it could not be judged. May raise `TimedOut`. With unit "turn" it
# gets the remaining actions, for replay in a fresh environment.
Verify = Callable[[Any], Awaitable[float]]
# The solution up to this character, with a new continuation by the policy.
Resume = Callable[[int], Awaitable[str]]


@dataclass(frozen=True)
class Plan:
    """Settings of the estimation of credits (config group `credit`).

    method: the intervention, or `shapley` or `resample`. unit, text_steps: definition of a step (`segments.segment`).
    budget: replays per trajectory, K >= 1; the check for flakiness does not count.
    choice: which steps to replay if there are more than the budget: the longest, or drawn uniformly.
    check_flaky: run the solution itself once more; if the score differs, no step gets a credit. A solution whose layout
        replays change is run in the replays' layout, with or without this.
    continuations: for `resample`, continuations averaged for the value of each prefix; each counts as one replay.
    """

    method: Method = "delete"
    unit: Unit = "statement"
    text_steps: bool = False
    budget: int = 4
    choice: Choice = "longest"
    check_flaky: bool = True
    continuations: int = 1

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"credit.budget is {self.budget}: set at least 1 replay per trajectory, or credit=off")
        if self.method == "resample" and self.unit == "turn":
            raise ValueError("credit.method=resample does not support unit=turn: use method=truncate or shapley")
        if not 1 <= self.continuations <= self.budget:
            raise ValueError(f"credit.continuations is {self.continuations}: set 1 to {self.budget}, the credit.budget")
        for value, valid in ((self.method, METHODS), (self.unit, UNITS), (self.choice, CHOICES)):
            if value not in valid:
                raise ValueError(f"unknown '{value}'; valid: {', '.join(valid)}")


@dataclass(frozen=True)
class Credits:
    """Steps of one solution, their credits, and the cost of the estimation.

    values: one per step; NaN for a step without a valid intervention, or beyond the budget.
    cause: why no step has a credit; "" if some have.
    asked: replays that the plan required; invalid: those without a valid program; unjudged: those that the verifier
    could not judge; timeouts: those that exceeded their time limit. replays: programs that were passed to the verifier
    or found in its cache. seconds: wall time.
    """

    steps: list[Step] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    cause: str = ""
    asked: int = 0
    invalid: int = 0
    unjudged: int = 0
    timeouts: int = 0
    replays: int = 0
    seconds: float = 0.0


async def estimate(
    solution: str,
    verify: Verify,
    plan: Plan,
    *,
    score: float,
    rng: random.Random | None = None,
    siblings: Sequence[Any] = (),
    turns: Sequence[tuple[int, int]] = (),
    resume: Resume | None = None,
) -> Credits:
    """Estimate the credits of one solution whose score is known.

    verify: judges a changed solution; any exception but `TimedOut` counts as "could not be judged".
    score: R(tau), in [0, 1]. rng: for uniform choice, orders and siblings; the same seed gives the same credits.
    siblings: other solutions of the same problem, for `replace`; with unit "turn" the actions of each. turns: for unit
    "turn", the characters [start, end) of each assistant turn in the solution. resume: the policy, for `resample`.
    """
    started = time.perf_counter()
    try:
        steps = segment(solution, plan.unit, text_steps=plan.text_steps, turns=turns)
    except NoSteps as reason:
        return Credits(cause=f"no_steps: {reason}")
    edits: Edits
    if plan.unit == "turn":
        edits = TurnEdits(tuple(solution[step.start : step.end] for step in steps), siblings)
    else:
        edits = ProgramEdits(solution, steps, plan.unit, plan.text_steps, siblings)
    if len(steps) < 2:
        return Credits(steps, [math.nan] * len(steps), cause="one_step")
    replayer = _Replayer(verify, resume)
    reference, cause = await _reference(edits, plan, score, replayer)
    if cause:
        return Credits(steps, [math.nan] * len(steps), cause=cause, seconds=time.perf_counter() - started)
    method = _METHODS[plan.method]
    values = await method(edits, steps, plan, reference, rng or random.Random(0), replayer)
    return Credits(
        steps,
        values,
        cause="" if any(map(math.isfinite, values)) else "no_valid_replay",
        asked=replayer.asked,
        invalid=replayer.invalid,
        unjudged=replayer.unjudged,
        timeouts=replayer.timeouts,
        replays=replayer.judged,
        seconds=time.perf_counter() - started,
    )


async def _reference(edits: Edits, plan: Plan, score: float, replayer: "_Replayer") -> tuple[float, str]:
    """R of the solution in the layout of its replays, to compare them with; and why there is none, else "".

    A reference that equals the score also shows that the program is not flaky. A different one may be due to the
    layout: then the solution as written decides.
    """
    written = edits.whole()
    rewritten = written if plan.method == "resample" else edits.rewritten()
    if rewritten is None or (rewritten == written and not plan.check_flaky):
        return score, ""
    reference = again = await replayer.score(rewritten, fresh=True)
    if math.isfinite(reference) and reference != score and rewritten != written:
        again = await replayer.score(written, fresh=True) if plan.check_flaky else score
    if not (math.isfinite(reference) and math.isfinite(again)):
        return math.nan, "unjudged"
    return reference, "" if again == score else "flaky"


class _Replayer:
    """Passes changed solutions to the verifier and counts the outcomes."""

    def __init__(self, verify: Verify, resume: Resume | None = None):
        self.verify = verify
        self.resume = resume
        self.asked = self.invalid = self.unjudged = self.timeouts = self.judged = 0

    async def score(self, changed: Solution | None, *, fresh: bool = False) -> float:
        """R of a changed solution; NaN if it is None, could not be judged, or hit its time limit."""
        self.asked += not fresh
        if changed is None:
            self.invalid += 1
            return math.nan
        self.judged += not fresh
        try:
            value = await self.verify(changed)
        except TimedOut:
            self.timeouts += 1
            return math.nan
        except Exception:
            value = math.nan
        self.unjudged += not math.isfinite(value)
        return value

    async def value(self, cut: int, continuations: int) -> float:
        """V of the solution up to this character: the mean R of the judged continuations, NaN if there are none."""
        scores = await asyncio.gather(*(self._continued(cut) for _ in range(continuations)))
        judged = [score for score in scores if math.isfinite(score)]
        return sum(judged) / len(judged) if judged else math.nan

    async def _continued(self, cut: int) -> float:
        if self.resume is None:
            raise ValueError("method 'resample' needs the argument `resume`, the policy that continues a prefix")
        try:
            text = await self.resume(cut)
        except Exception:  # a failure of the engine is no evidence about the step
            self.asked += 1
            self.judged += 1
            self.unjudged += 1
            return math.nan
        return await self.score(text)


async def _one_at_a_time(
    edits: Edits, steps: list[Step], plan: Plan, whole: float, rng: random.Random, replayer: _Replayer
) -> list[float]:
    chosen = choose(steps, plan.budget, plan.choice, rng)
    if plan.method == "replace":
        changed = [edits.swap(index, rng) for index in chosen]
    else:
        changed = [edits.keep([other for other in range(len(steps)) if other != index]) for index in chosen]
    scores = await asyncio.gather(*map(replayer.score, changed))
    values = [math.nan] * len(steps)
    for index, replayed in zip(chosen, scores, strict=True):
        values[index] = whole - replayed
    return values


def choose(steps: Sequence[Step], budget: int, choice: Choice, rng: random.Random) -> list[int]:
    """Indices of at most `budget` steps, in order: the longest (the earlier of equals), or drawn uniformly."""
    if len(steps) <= budget:
        return list(range(len(steps)))
    if choice == "uniform":
        return sorted(rng.sample(range(len(steps)), budget))
    longest_first = sorted(range(len(steps)), key=lambda index: steps[index].start - steps[index].end)
    return sorted(longest_first[:budget])


async def _truncate(
    edits: Edits, steps: list[Step], plan: Plan, whole: float, rng: random.Random, replayer: _Replayer
) -> list[float]:
    """Credits of consecutive blocks of steps, with one cut before each block; the budget counts the cuts."""
    blocks = even_blocks(len(steps), plan.budget)
    cuts = [range(block[0]) for block in blocks]
    before = await asyncio.gather(*(replayer.score(edits.keep(cut)) for cut in cuts))
    gains = [after - first for first, after in pairwise([*before, whole])]
    return _shared(gains, blocks, len(steps))


async def _shapley(
    edits: Edits, steps: list[Step], plan: Plan, whole: float, rng: random.Random, replayer: _Replayer
) -> list[float]:
    """Mean marginal gain over as many sampled orders as the budget allows; over blocks of steps if it allows none."""
    blocks = even_blocks(len(steps), plan.budget)
    # An order of n blocks has n - 1 coalitions in addition to the empty one (paid once) and the full one (known).
    count = max(1, (plan.budget - 1) // max(1, len(blocks) - 1))
    orders = [rng.sample(range(len(blocks)), len(blocks)) for _ in range(count)]
    coalitions = {frozenset(order[:size]) for order in orders for size in range(len(blocks))}
    ordered = sorted(coalitions, key=sorted)
    members = [[step for block in coalition for step in blocks[block]] for coalition in ordered]
    scores = await asyncio.gather(*(replayer.score(edits.keep(kept)) for kept in members))
    worth = dict(zip(ordered, scores, strict=True)) | {frozenset(range(len(blocks))): whole}
    gains = [0.0] * len(blocks)
    for order in orders:
        for size, block in enumerate(order):
            gains[block] += (worth[frozenset(order[: size + 1])] - worth[frozenset(order[:size])]) / count
    return _shared(gains, blocks, len(steps))


async def _resample(
    edits: Edits, steps: list[Step], plan: Plan, whole: float, rng: random.Random, replayer: _Replayer
) -> list[float]:
    """Credits of consecutive blocks of steps, with one value before each block; the budget counts continuations."""
    blocks = even_blocks(len(steps), plan.budget // plan.continuations)
    cuts = [steps[block[0]].start for block in blocks]
    before = await asyncio.gather(*(replayer.value(cut, plan.continuations) for cut in cuts))
    gains = [after - first for first, after in pairwise([*before, whole])]
    return _shared(gains, blocks, len(steps))


def even_blocks(steps: int, blocks: int) -> list[range]:
    """Consecutive steps split into at most `blocks` blocks of nearly equal size."""
    blocks = min(steps, blocks)
    edges = [steps * index // blocks for index in range(blocks + 1)]
    return [range(first, last) for first, last in pairwise(edges)]


def _shared(gains: Sequence[float], blocks: Sequence[range], steps: int) -> list[float]:
    """Each block's gain, divided equally among its steps."""
    values = [math.nan] * steps
    for gain, block in zip(gains, blocks, strict=True):
        for step in block:
            values[step] = gain / len(block)
    return values


_METHODS = {
    "delete": _one_at_a_time,
    "replace": _one_at_a_time,
    "truncate": _truncate,
    "shapley": _shapley,
    "resample": _resample,
}
