"""Counterfactual replay: what the verifier says of a solution when one of its steps is changed.

With R the verifier's score in [0, 1], tau the solution and t = 1..T its steps (tau in the layout that its replays have,
since a verifier may read layout):

    delete, replace   c_t = R(tau) - R(tau with step t changed)
    truncate          c_t = R(tau up to t) - R(tau up to t-1); the credits add up to R(tau) - R(nothing)
    shapley           mean gain of step t over sampled orders; the credits add up to R(tau) - R(nothing)
    resample          c_t = V(tau up to t) - V(tau up to t-1), V the mean R of what the policy makes of a prefix

Estimand: but for `resample` the suffix stays as it was, so a credit is the step's direct effect (a plan or a comment
has none). `resample` measures the total effect: what a step does to everything that comes after it.

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
from typing import Any, Literal

from rewards.counterfactual.interventions import Changed, Edits, ProgramEdits, TurnEdits
from rewards.counterfactual.segments import UNITS, NoSteps, Step, Unit, segment

Method = Literal["delete", "truncate", "replace", "shapley", "resample"]
METHODS: tuple[Method, ...] = ("delete", "truncate", "replace", "shapley", "resample")
Choice = Literal["longest", "uniform"]
CHOICES: tuple[Choice, ...] = ("longest", "uniform")


class TimedOut(Exception):
    """A changed solution met a time limit that the solution itself did not: that says nothing of its score."""


# The score of a changed solution in [0, 1]; NaN when it could not be judged. May raise `TimedOut`. With unit "turn" it
# is given the actions that remain, for replay against a fresh environment.
Verify = Callable[[Any], Awaitable[float]]
# The solution up to this character and what the policy, asked anew, makes of it.
Resume = Callable[[int], Awaitable[str]]


@dataclass(frozen=True)
class Plan:
    """How credits are estimated (config group `credit`).

    method: which intervention, or shapley. unit, text_steps: what a step is (`segments.segment`).
    budget: replays a trajectory may cost, K >= 1; the check for flakiness is not counted.
    choice: which steps when there are more than the budget: the longest, or equally likely ones.
    check_flaky: run the solution itself once more; if the score differs, no step gets a credit. A solution whose layout
        replays change is run in theirs, with or without this.
    continuations: of `resample`, how many the value of each prefix is the mean of; each is a replay of the budget.
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
            raise ValueError(f"budget is {self.budget} replays a trajectory; it must be at least 1 (or use credit=off)")
        if self.method == "resample" and self.unit == "turn":
            raise ValueError("method 'resample' goes on inside an answer; unit 'turn' has 'truncate' and 'shapley'")
        if not 1 <= self.continuations <= self.budget:
            raise ValueError(f"continuations is {self.continuations}; it must be from 1 to the budget, {self.budget}")
        for value, valid in ((self.method, METHODS), (self.unit, UNITS), (self.choice, CHOICES)):
            if value not in valid:
                raise ValueError(f"unknown '{value}'; valid: {', '.join(valid)}")


@dataclass(frozen=True)
class Credits:
    """Steps of one solution and their credits, and what it took.

    values: one for each step; NaN for a step without a valid intervention, or left out by the budget.
    cause: why no step has a credit; "" when some have.
    asked: replays that the plan wanted; invalid: those without a valid program; unjudged: those that the verifier
    could not judge; timeouts: those that took longer than they were given. replays: programs that were given to the
    verifier or found in its cache. seconds: wall time.
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
    """The credits of one solution whose score is known.

    verify: judges a changed solution; may raise what a verifier raises, which counts as "could not be judged".
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
        steps, values, "" if any(map(math.isfinite, values)) else "no_valid_replay", replayer.asked, replayer.invalid,
        replayer.unjudged, replayer.timeouts, replayer.judged, time.perf_counter() - started,
    )  # fmt: skip


async def _reference(edits: Edits, plan: Plan, score: float, replayer: "_Replayer") -> tuple[float, str]:
    """What replays are compared with: R of the solution in their layout; and why it cannot be had, else "".

    A reference that equals the score shows that the program is not flaky, too. One that differs may come of the
    layout: then the solution as it was written decides.
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
    """Gives changed solutions to the verifier and counts what comes of it."""

    def __init__(self, verify: Verify, resume: Resume | None = None):
        self.verify = verify
        self.resume = resume
        self.asked = self.invalid = self.unjudged = self.timeouts = self.judged = 0

    async def score(self, changed: Changed | None, *, fresh: bool = False) -> float:
        """R of a changed solution; NaN where it is None, could not be judged, or took too long."""
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
        """V of the solution up to this character: the mean of those continuations that could be judged, else NaN."""
        scores = await asyncio.gather(*(self._continued(cut) for _ in range(continuations)))
        judged = [score for score in scores if math.isfinite(score)]
        return sum(judged) / len(judged) if judged else math.nan

    async def _continued(self, cut: int) -> float:
        if self.resume is None:
            raise ValueError("method 'resample' needs the policy, to go on from a prefix")
        try:
            text = await self.resume(cut)
        except Exception:  # an engine that cannot be asked says nothing of the step
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
    """At most `budget` steps in order: the longest (the earlier of equals), or drawn with equal chances."""
    if len(steps) <= budget:
        return list(range(len(steps)))
    if choice == "uniform":
        return sorted(rng.sample(range(len(steps)), budget))
    return sorted(sorted(range(len(steps)), key=lambda index: steps[index].start - steps[index].end)[:budget])


async def _truncate(
    edits: Edits, steps: list[Step], plan: Plan, whole: float, rng: random.Random, replayer: _Replayer
) -> list[float]:
    """Credits of consecutive blocks of steps, one cut between each two; the budget counts the cuts."""
    blocks = even_blocks(len(steps), plan.budget)
    cuts = [range(block[0]) for block in blocks]
    before = await asyncio.gather(*(replayer.score(edits.keep(cut)) for cut in cuts))
    gains = [after - first for first, after in pairwise([*before, whole])]
    return _shared(gains, blocks, len(steps))


async def _shapley(
    edits: Edits, steps: list[Step], plan: Plan, whole: float, rng: random.Random, replayer: _Replayer
) -> list[float]:
    """Mean marginal gain over as many sampled orders as the budget pays for; blocks where it does not pay for one."""
    blocks = even_blocks(len(steps), plan.budget)
    # An order of n blocks has n - 1 coalitions besides none (paid once) and all (known).
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
    """Credits of consecutive blocks of steps, one value before each; the budget counts continuations."""
    blocks = even_blocks(len(steps), plan.budget // plan.continuations)
    cuts = [steps[block[0]].start for block in blocks]
    before = await asyncio.gather(*(replayer.value(cut, plan.continuations) for cut in cuts))
    gains = [after - first for first, after in pairwise([*before, whole])]
    return _shared(gains, blocks, len(steps))


def even_blocks(steps: int, blocks: int) -> list[range]:
    """Consecutive steps in at most so many blocks of nearly equal size."""
    blocks = min(steps, blocks)
    edges = [steps * index // blocks for index in range(blocks + 1)]
    return [range(first, last) for first, last in pairwise(edges)]


def _shared(gains: Sequence[float], blocks: Sequence[range], steps: int) -> list[float]:
    """Each block's gain in equal parts to its steps."""
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
